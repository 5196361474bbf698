"""The commands and snippets of the README and of the pages under docs run as they are printed."""

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess

import forked
import pytest
from places import ROOT

from grd_offline.learning.agents.algorithms import list_online
from grd_offline.learning.settings import FITS, METHODS, OnlineSettings
from grd_offline.learning.settings import LAMBDAS as LAMBDA_NAMES
from grd_offline.methods.choose import GOOD_ENOUGH
from grd_offline.methods.paper import LAMBDAS
from grd_offline.methods.relabelling import compare_with_truth

ONLINE = (ROOT / "docs" / "online.md").read_text()
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
SAMPLE = "grd-offline decompose datasets/sample.h5 --out sample-grd\n"
"""Several pages begin with this command. It runs once for all of them."""
_SHORT = "--max-episode-steps 30"
_TRAINED = f"--updates 20 --batch 32 --eval-every 10 --eval-episodes 1 --workers 0 {_SHORT}"
SMALL = {
    "make demo ": "true ",
    "make test ": "true ",
    "pip install -c constraints.txt .": "true",
    "--episodes 500 ": f"--episodes 15 --workers 1 {_SHORT} ",
    "decompose hc.h5": "decompose hc.h5 --fit linear",
    "decompose sample.h5": "decompose sample.h5 --fit linear",
    "decompose trips.csv": "decompose trips.csv --fit linear",
    "--episodes 50 ": f"--episodes 5 --workers 1 {_SHORT} ",
    "--method grd,rrd,oracle --seeds 5": "--method grd,rrd,oracle --steps 100 --warmup 90 "
    f"--eval-every 50 --eval-episodes 1 --workers 0 {_SHORT}",
    "--checkpoints 0:300000": f"--checkpoints 0:300000 --episodes 3 --workers 1 {_SHORT}",
    "--rewards relabelled,observed,true": f"--rewards relabelled,observed,true {_TRAINED}",
    "--methods grd,rrd,uniform --seeds 5": f"--methods grd,uniform --fit linear {_TRAINED}",
}
"""What stands in the README, and what the test runs instead: the same commands in seconds."""
ONE_BY_ONE = "import sys\nfor text in sys.argv[1:]:\n    exec(text, {'__name__': '__main__'})"
"""Each snippet has a namespace of its own."""


def find_snippets(page):
    """Language and text of each fence that is a program."""
    return re.findall(r"```(sh|python)\n(.*?)```", page.read_text(), re.DOTALL)


def run_snippets(snippets, folder, commands):
    """Run snippets in order, in a folder; `grd-offline` trains small networks."""
    for language, group in itertools.groupby(snippets, lambda snippet: snippet[0]):
        texts = [text for _, text in group]
        environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
        if language == "python":
            done = forked.run_script(ONE_BY_ONE, *texts, cwd=folder, environment=environment)
        else:
            shell = ["bash", "-e", "-c", "\n".join(texts)]
            done = subprocess.run(
                shell, cwd=folder, capture_output=True, text=True, env=environment
            )
        assert done.returncode == 0, "\n".join([*texts, done.stderr])


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A folder with the command, which starts at once."""
    folder = tmp_path_factory.mktemp("commands") / "bin"
    forked.write_command(folder)
    return folder


@pytest.mark.timeout(900)  # half a minute on a core of its own, longer on a busy computer
@pytest.mark.long
def test_the_readme_runs_from_top_to_bottom_in_an_empty_folder(tmp_path, commands):
    snippets = []
    unused = set(SMALL)
    for language, text in find_snippets(README):
        for printed, small in SMALL.items():
            if printed in text:
                unused.discard(printed)
                text = text.replace(printed, small)
        snippets.append((language, text))
    assert unused == set()
    shutil.copy(ROOT / "datasets" / "sample.h5", tmp_path)
    run_snippets(snippets, tmp_path, commands)
    made = {entry.name for entry in tmp_path.iterdir()}
    assert made == {
        *("sample.h5", "sample-grd", "sample-grd.onnx", "sample-minari", "trips.csv", "trips-grd"),
        *("hc.h5", "hc-grd", "other.h5", "other-relabelled.h5", "runs", "mixed.h5", "hc-judge"),
    }
    assert (tmp_path / "trips-grd" / "relabelled.csv").exists()
    assert (tmp_path / "runs" / "hc" / "plots" / "return.png").exists()


def test_every_command_of_the_readme_stands_in_a_block_that_runs():
    """An indented line would look like a command, and would not be tested."""
    assert re.findall(r"(?m)^    \S.*", README.read_text()) == []
    commands = [line for kind, text in find_snippets(README) if kind == "sh"
                for line in text.splitlines()]  # fmt: skip
    assert len([line for line in commands if line.startswith("grd-offline ")]) >= 14


def copy_sample(folder):
    """Put the sample where it lies in the repository."""
    (folder / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "sample.h5", folder / "datasets")


@pytest.fixture(scope="module")
def sample(tmp_path_factory, commands):
    """A folder with the sample of the repository, decomposed as the pages say."""
    folder = tmp_path_factory.mktemp("sample")
    copy_sample(folder)
    run_snippets([("sh", SAMPLE)], folder, commands)
    return folder


def test_the_sample_is_decomposed_rightly_and_says_so(sample):
    metrics = json.loads((sample / "sample-grd" / "metrics.json").read_text())
    assert metrics["verdict"]["level"] == "fine"
    assert {finding["level"] for finding in metrics["identifiability"]["findings"]} == {"fine"}
    masks = json.loads((sample / "sample-grd" / "masks.json").read_text())
    found = [n for n, on in zip(masks["state_names"], masks["state_to_reward"], strict=True) if on]
    assert found == ["velocity rootx"]
    assert masks["action_to_reward"] == [1, 1, 1]
    truth = compare_with_truth(sample / "sample-grd", "true_rewards")["rewards"]
    assert truth["pearson"] > 0.999
    assert truth["coverage_90"] > 0.85


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
@pytest.mark.long
def test_snippets_of_a_page_run_in_order(page, tmp_path, commands, request):
    # d3rlpy has an environment of its own; the tests there run its snippet.
    left_out = "d3rlpy" if importlib.util.find_spec("d3rlpy") is None else "\0"
    found = [(kind, text) for kind, text in find_snippets(page) if left_out not in text]
    copy_sample(tmp_path)
    if any(SAMPLE in text for _, text in found):
        shutil.copytree(request.getfixturevalue("sample") / "sample-grd", tmp_path / "sample-grd")
    run_snippets([(kind, text.replace(SAMPLE, "")) for kind, text in found], tmp_path, commands)
    if page.name == "online.md":
        assert len(list(tmp_path.glob("runs/small/plots/*.png"))) == 4


@pytest.mark.parametrize(
    ("name", "least"),
    [("online.md", 5), ("interop.md", 9), ("choosing.md", 3), ("python.md", 5), ("report.md", 2)],
)
def test_pages_have_snippets(name, least):
    assert len(find_snippets(ROOT / "docs" / name)) >= least


def test_the_readme_is_short():
    assert len(README.read_text().split()) < 2000


def test_links_between_pages_lead_somewhere():
    for page in (README, *DOCS):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


QUALITY, FORMS, PAIRS = "results/quality.txt", "research/closed_form.md", "research/pair_net.md"
QUOTES = (
    ("sin of a sum of four, .958 against .666", PAIRS, ["| wave | 1,000 |"]),
    (".9801 (worst .9510) on 500 smooth", QUALITY, ["smooth 500 grd:pair-net 12"]),
    (".1509 and .1829 at 500", QUALITY, ["smooth 500 grd:paper 3", "hard 500 grd:paper 3"]),
    (
        ".7724 on smooth and .7529 on hard worlds, where the closed form had .9942 and .9918",
        QUALITY,
        [
            "smooth 500 rrd-unbiased 3",
            "hard 500 rrd-unbiased 3",
            "smooth 500 grd:closed-form 3 ",
            "hard 500 grd:closed-form 3 ",
        ],
    ),
    ("| smooth, 50 episodes | .924 (.689) | .971, .917 |", FORMS, ["| smooth, 50 |"]),
    ("| smooth, 100 | .991 (.986) | 1.00, 1.00 |", FORMS, ["| smooth, 100 |"]),
    ("| smooth, 200 | .9920 (.9626) | .9917, .9933 |", QUALITY, ["smooth 200 grd:closed-form 30"]),
    ("| hard, 500 | .9894 (.9773) | 1.00, 1.00 |", QUALITY, ["hard 500 grd:closed-form 30"]),
    ("term, 500 | .9943 (.9930) | 1.00, 1.00 |", QUALITY, ["three-way 500 grd:closed-form 10"]),
    ("1,000 | .9944 (.9935) | 1.00, 1.00 |", QUALITY, ["wide 1000 grd:closed-form 4"]),
    ("| .5517 (.2724) | .9167, .9125 |", QUALITY, ["noisy 200 grd:closed-form 16"]),
    ("single worlds fail (.689)", FORMS, ["| smooth, 50 |"]),
    (
        "every 20 steps gave .989, with one at the end .818",
        FORMS,
        ["| hard, 50, a delivery every 20 steps", "| hard, 50, 6 graphs"],
    ),
    ("F1 of the actions was .9125", QUALITY, ["noisy 200 grd:closed-form 16"]),
    (".56 to .57 of the state edges", "research/dynamics.md", ["| share of edges kept |"]),
    (".9998 on returns and .7309 per step", QUALITY, ["halfcheetah 500 grd:closed-form"]),
    ("largest of four inputs .997 and .975", PAIRS, ["| largest of four |"]),
    ("a product of four .992 and .907", PAIRS, ["| product of four tanh"]),
    ("in one world .99 and .82", PAIRS, ["stage gives up (102"]),
    ("speed less the cost of acting, scores .7306", FORMS, ["| HalfCheetah, 500 |"]),
    ("has a ceiling: .995", PAIRS, ["reward (ceiling .995)"]),
    (
        ".9110 of the rewards on smooth worlds, .9153 on hard and .8522 on noisy",
        QUALITY,
        [
            "smooth 200 grd:closed-form 30",
            "hard 500 grd:closed-form 30",
            "noisy 200 grd:closed-form 16",
        ],
    ),
    ("as little as .480", FORMS, ["| smooth, 50 |"]),
    (f"explains less than {str(GOOD_ENOUGH)[1:]} of", None, []),
)
"""What docs/choosing.md says, and how the lines begin in which the benchmarks say it."""


def find_figures(text):
    """Numbers between 0 and 1 with two digits or more after the point."""
    return [float(found) for found in re.findall(r"(?<![\d.])0?\.\d{2,4}\b", text)]


def find_line(file, start):
    """The last line that begins so: the latest measurement."""
    lines = [
        " ".join(line.split()) for line in (ROOT / "benchmarks" / file).read_text().split("\n")
    ]
    return [line for line in lines if line.startswith(start)][-1]


@pytest.mark.parametrize(("quote", "file", "starts"), QUOTES, ids=lambda value: str(value)[:40])
def test_a_figure_on_choosing_is_the_one_that_was_measured(quote, file, starts):
    assert quote in " ".join((ROOT / "docs/choosing.md").read_text().split())
    if file is not None:
        measured = [find_figures(find_line(file, start)) for start in starts]
        assert set(find_figures(quote)) <= set(itertools.chain(*measured))
        assert all(set(find_figures(quote)) & set(figures) for figures in measured)


def test_every_figure_on_choosing_is_compared():
    text = " ".join((ROOT / "docs/choosing.md").read_text().split())
    for quote, _, _ in QUOTES:
        text = text.replace(quote, "")
    assert find_figures(text) == []


def rows(text):
    """The cells of a page's tables, row by row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def test_tables_on_training_online_are_complete():
    first = [row[0] for row in rows(ONLINE)]
    for name in (*METHODS, *FITS, *list_online()):
        assert name in first


def test_the_papers_settings_are_told_as_they_are():
    table = {row[0]: row[1:] for row in rows(ONLINE)}
    assert table["environment"] == list(LAMBDA_NAMES)
    for environment, weights in LAMBDAS.items():
        assert [float(cell) for cell in table[environment]] == list(weights)
    (part,) = re.findall(r"\| setting \| paper \| default \|\n\|.*?\n(.*?)\n\n", ONLINE, re.DOTALL)
    for names, paper, default in rows(part):
        told = default or paper
        fields = re.findall(r"[a-z_]{3,}", names)
        assert told == ", ".join(tell(getattr(OnlineSettings("any"), name)) for name in fields)


def tell(value):
    """A setting as the page writes it."""
    if isinstance(value, tuple):
        return ", ".join(map(tell, value))
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("0.0003", "3e-4")
