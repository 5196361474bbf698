"""Figures of a run, drawn from files that were written here: nothing is trained."""

import csv

import forked
import numpy as np
import pytest
from decompositions import write_decomposition
from matplotlib.text import Text
from pages import report_runs
from run_tables import write_run

from grd_offline.cli import main
from grd_offline.core.errors import DataError
from grd_offline.io.files.results import EVALUATION_COLUMNS, read_episode, read_masks, read_run
from grd_offline.methods.result import read_decomposition
from grd_offline.report.figures import (
    GREYS,
    draw_comparison,
    draw_decomposition,
    draw_run,
    save_figure,
)
from grd_offline.report.page import DARK, LIGHT
from grd_offline.report.training import make_curves, scales_differ

STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def plot(*arguments, cwd=None):
    return forked.run("plot", *arguments, cwd=cwd)


def test_curves_are_means_and_spreads_over_seeds(tmp_path):
    ircr, grd, oracle = make_curves([read_run(write_run(tmp_path / "run"))], "return")
    assert [curve.label for curve in (ircr, grd, oracle)] == ["ircr", "grd-quadratic", "oracle"]
    assert [curve.is_oracle for curve in (ircr, grd, oracle)] == [False, False, True]
    assert grd.steps.tolist() == [1000, 2000, 3000, 4000, 5000]
    assert grd.means.tolist() == [2.5, 4.5, 6.5, 8.5, 10.5]
    assert grd.spreads.tolist() == [0.5] * 5
    assert grd.seeds == 2


def test_groups_without_the_metric_are_left_out(tmp_path):
    (curve,) = make_curves([read_run(write_run(tmp_path / "run"))], "correlation")
    assert curve.label == "grd-quadratic"


def test_the_oracle_is_dashed_and_grey(tmp_path):
    figure = draw_comparison([read_run(write_run(tmp_path / "run"))], "return")
    *others, oracle = figure.axes[0].lines
    assert (oracle.get_color(), oracle.get_linestyle()) == (GREYS[0], "--")
    assert [line.get_linestyle() for line in others] == ["-", "-"]
    assert len({line.get_color() for line in (*others, oracle)}) == 3


@pytest.mark.parametrize("seeds", [2, 5])
def test_few_seeds_are_lines_and_many_are_a_band(tmp_path, seeds):
    run = read_run(write_run(tmp_path / "run", groups=("ircr",), seeds=seeds))
    (axes,) = draw_comparison([run], "return").axes
    (drawn,) = axes.collections
    assert (len(drawn.get_paths()) == seeds) == (seeds < 5)
    low, high = axes.get_ylim()
    assert seeds == 5 or low <= 1 < 6 <= high  # the lowest and the highest return of a seed


def test_figures_have_the_colours_of_the_page(tmp_path):
    (axes,) = draw_run(read_run(write_run(tmp_path / "run")), "return")["episode"].axes
    true, found = axes.lines
    assert (true.get_color(), found.get_color()) == (LIGHT["second"], LIGHT["accent"])
    page = report_runs([tmp_path / "run"])
    assert f"--accent:{LIGHT['accent']};" in page
    assert f"--accent:{DARK['accent']};" in page


def test_groups_of_several_runs_are_told_apart(tmp_path):
    runs = [read_run(write_run(tmp_path / name)) for name in ("one", "two")]
    labels = [line.get_label() for line in draw_comparison(runs, "return").axes[0].lines]
    assert labels[0] == "one: ircr (2 seeds)"
    assert labels[-1] == "two: oracle (2 seeds)"
    assert len(labels) == 6


@pytest.mark.parametrize(
    ("evaluations", "steps"),
    [(1, [1000]), (2, [1000, 2000]), (3, [1000, 2000, 3000]), (5, [1000, 3000, 5000])],
)
def test_masks_at_first_middle_and_last_evaluation(tmp_path, evaluations, steps):
    run = read_run(write_run(tmp_path / "run", evaluations=evaluations))
    masks = read_masks(run, "grd-quadratic-seed1")
    assert [at["step"] for at in masks] == steps
    assert masks[0]["state_to_reward"].shape == (1, 4)
    figures = draw_run(run, "return")
    assert [axes.get_title() for axes in figures["masks"].axes] == [f"step {s:,}" for s in steps]
    assert "state → state 25%" in figures["masks"].axes[0].get_xlabel()


def test_the_episode_is_one_of_a_member_with_masks(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    (axes,) = draw_run(run, "return")["episode"].axes
    assert axes.get_title().startswith("grd-quadratic-seed1, last episode at step 5,000")
    assert axes.get_title().endswith("correlation 1.00")
    assert axes.get_ylabel() == "reward, standardised"
    true, found = axes.lines
    np.testing.assert_allclose(true.get_ydata(), found.get_ydata(), atol=1e-12)


def test_scales():
    values = np.arange(10.0)
    assert not scales_differ(values, values * 1.5)
    assert scales_differ(values, values * 3)
    assert scales_differ(values, values + 100)


def test_a_constant_reward_has_no_correlation(tmp_path):
    write_run(tmp_path / "run", groups=("ircr",))
    folder = tmp_path / "run" / "members" / "ircr-seed0" / "episodes"
    (folder / "step-000005000.csv").write_text("reward,true_reward\n0.1,1\n0.1,2\n0.1,3\n")
    (axes,) = draw_run(read_run(tmp_path / "run"), "return")["episode"].axes
    assert axes.get_title().endswith("the reward found is constant")


def test_more_states_than_labels(tmp_path):
    run = read_run(write_run(tmp_path / "run", states=111))
    (axes, *_) = draw_run(run, "return")["masks"].axes
    assert len(axes.get_yticks()) <= 20


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_the_same_figure_gives_the_same_bytes(tmp_path, form):
    run = read_run(write_run(tmp_path / "run"))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        save_figure(draw_comparison([run], "return"), tmp_path / name / f"a.{form}", form)
    first, second = ((tmp_path / name / f"a.{form}").read_bytes() for name in ("first", "second"))
    assert first == second
    assert first.startswith(STARTS[form])


def test_plot_writes_into_the_run(tmp_path):
    write_run(tmp_path / "run")
    done = plot("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = ["return", "edges", "masks", "episode"]
    assert done.stdout.splitlines() == [f"wrote run/plots/{name}.png" for name in names]
    for name in names:
        assert (tmp_path / "run" / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_figures_fit_a_column_and_text_has_8_points(tmp_path):
    of_run = draw_run(read_run(write_run(tmp_path / "run")), "return")
    record = read_decomposition(write_decomposition(tmp_path / "grd"))
    of_decomposition = draw_decomposition(record)
    assert set(of_run) == {"return", "edges", "masks", "episode"}
    assert set(of_decomposition) == {"returns", "importance", "effects", "masks", "rewards"}
    for name, figure in (*of_run.items(), *of_decomposition.items()):
        assert figure.get_figwidth() in (3.25, 6.75), name
        texts = [text for text in figure.findobj(Text) if text.get_text()]
        assert {text.get_fontsize() for text in texts} == {8}, name
        figure.draw_without_rendering()
        width = figure.get_figwidth() * figure.dpi
        for text in texts:
            box = text.get_window_extent()
            assert -1 <= box.x0 <= box.x1 <= width + 1 or not text.get_visible(), text.get_text()


def test_fonts_of_a_pdf_are_embedded_as_truetype(tmp_path):
    record = read_decomposition(write_decomposition(tmp_path / "grd"))
    figure = draw_decomposition(record)["returns"]
    save_figure(figure, tmp_path / "figure.pdf", "pdf")
    contents = (tmp_path / "figure.pdf").read_bytes()
    assert b"/Type3" not in contents
    assert b"/FontFile2" in contents
    assert b"/MediaBox [ 0 0 234 234 ]" in contents


def test_figures_of_a_decomposition(tmp_path):
    folder = write_decomposition(tmp_path / "grd")
    figures = draw_decomposition(read_decomposition(folder))
    first, second, *_ = figures["effects"].axes
    assert (first.get_xlabel(), second.get_xlabel()) == ("speed", "push")
    np.testing.assert_allclose(first.lines[0].get_ydata(), 0.9 * np.linspace(-2, 2, 65))
    bars = figures["importance"].axes[0].patches
    assert [bar.get_width() for bar in bars] == pytest.approx([90, 10])
    below = figures["rewards"].axes[1]
    found, true, observed = below.lines
    assert observed.get_ydata() == pytest.approx(true.get_ydata()[-1])
    assert len(found.get_ydata()) == len(true.get_ydata())
    done = plot("grd", "--format", "svg", cwd=tmp_path)
    names = ["returns", "importance", "effects", "masks", "rewards"]
    assert done.stdout.splitlines() == [f"wrote grd/plots/{name}.svg" for name in names]
    done = plot("grd", "-o", "a.pdf", cwd=tmp_path)
    assert "-o: draws learning curves of runs, and grd is not a run" in done.stderr


def test_plot_of_several_runs(tmp_path):
    write_run(tmp_path / "one")
    write_run(tmp_path / "two", groups=("ircr",))
    done = plot("one", "two", "--format", "svg", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "wrote one/plots/comparison-return.svg"
    assert "wrote two/plots/return.svg" in done.stdout
    done = plot("one", "two", "-o", "both.pdf", cwd=tmp_path)
    assert done.stdout == "wrote both.pdf\n"
    assert (tmp_path / "both.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["empty"], "empty: no evaluation yet"),
        (["run", "empty"], "empty: no evaluation yet"),
        (["run", "-o", "figure.gif"], "expected a name that ends in .png, .svg, .pdf"),
        (["run", "-o", "no-such/figure.png"], "no-such/figure.png: cannot be written"),
        (["plain", "--metric", "correlation"], "plain/evaluations.csv: no correlation in any"),
        (["broken"], "step-000005000.json: cannot be read as masks"),
        (["words"], "words/evaluations.csv: mean_return: expected a number, got 'many'"),
        ([], "Missing argument 'RUN...'"),
    ],
)
def test_errors_are_one_line(tmp_path, arguments, message, capsys, monkeypatch):
    write_run(tmp_path / "run", evaluations=1)
    write_run(tmp_path / "empty", evaluations=0)
    write_run(tmp_path / "plain", groups=("ircr",))
    masks = write_run(tmp_path / "broken") / "members" / "grd-quadratic-seed1" / "masks"
    (masks / "step-000005000.json").write_text('{"step": 5000}')
    table = write_run(tmp_path / "words") / "evaluations.csv"
    with table.open("a", newline="") as file:
        row = {"step": "9000", "group": "ircr", "seed": "0", "mean_return": "many"}
        csv.DictWriter(file, EVALUATION_COLUMNS, restval="").writerow(row)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["plot", *arguments])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run" / "plots").exists()


def test_a_table_without_the_columns_is_refused(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "run" / "evaluations.csv").write_text("step,member\n1000,a\n")
    with pytest.raises(DataError, match=r"evaluations\.csv: expected a column"):
        read_run(tmp_path / "run")


def test_a_member_without_episodes_has_none(tmp_path):
    assert read_episode(read_run(write_run(tmp_path / "run")), "oracle-seed0") is None
