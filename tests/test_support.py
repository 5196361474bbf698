"""Every cell of the table of docs/support.md: each kind of data in each command."""

import choices
import numpy as np
import pytest
from click.testing import CliRunner
from places import ROOT

from grd_offline import load_actor, read
from grd_offline.cli.program import cli
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.learning.offline.run import check_actions

KINDS = {
    "continuous": ("box", "box"),
    "discrete actions": ("box", "discrete"),
    "categorical states": ("discrete", "discrete"),
    "Dict observations": ("dict", "discrete"),
    "Tuple observations": ("tuple", "box"),
    "several choices (MultiDiscrete)": ("box", "several"),
}
TRAINED = [kind for kind in KINDS if "several" not in kind]
EPISODES = 9
"""So few that none are held out, and each fit is made once."""
SMALL = ("--seeds", "1", "--workers", "0", "--eval-episodes", "2")


def run(*arguments, code=0):
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if code == 0 and done.exception is not None:
        raise done.exception
    return done


def env_of(kind):
    observed, acted = KINDS[kind]
    named = (f"observed={observed}", f"acted={acted}")
    return ("--env", choices.ID, *(part for name in named for part in ("--env-arg", name)))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A function that collects and decomposes a kind of data once, and gives its folder."""
    choices.register()
    place, done = tmp_path_factory.mktemp("support"), {}

    def make(kind):
        if kind not in done:
            folder = done[kind] = place / str(len(done))
            folder.mkdir()
            file = folder / "data.h5"
            run("collect", *env_of(kind), "--episodes", EPISODES, "--policy", "random",
                "--workers", 1, "--keep-true-rewards", "--out", file)  # fmt: skip
            run("decompose", file, "--fit", "closed-form")
        return done[kind]

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_collect_decompose_report_relabel_export(kind, data):
    folder = data(kind)
    found = read(folder / "data-grd" / "relabelled.h5")
    assert len(found) == EPISODES
    assert found.discrete_actions == (KINDS[kind][1] != "box")
    run("report", folder / "data-grd")
    page = (folder / "data-grd" / "report.html").read_text()
    assert all(name in page for name in found.action_names)
    run("relabel", folder / "data.h5", "--model", folder / "data-grd", "--out", folder / "new.h5")
    again = read(folder / "new.h5")
    np.testing.assert_allclose(again[0].rewards, found[0].rewards, rtol=1e-6)
    run("export", folder / "data-grd", "--to", "torch-export")
    assert "true" in run("inspect", folder / "new.h5").output
    run("convert", folder / "data.h5", folder / "minari", "--to", "minari")
    assert read(folder / "minari").discrete_actions == found.discrete_actions


@pytest.mark.long
@pytest.mark.parametrize("kind", TRAINED)
def test_train_offline_judge_and_collect_with_the_policy(kind, data, tmp_path):
    folder = data(kind)
    short = (*SMALL, "--updates", 10, "--eval-every", 10, "--batch", 8)
    run("train-offline", folder / "data-grd" / "relabelled.h5", *env_of(kind), *short,
        "--out", tmp_path / "run")  # fmt: skip
    policy = tmp_path / "run/members/relabelled-seed0/policies/best"
    assert load_actor(policy).spec.is_discrete == (KINDS[kind][1] == "discrete")
    run("collect", *env_of(kind), "--policy", policy, "--episodes", 2, "--workers", 1,
        "--out", tmp_path / "more.h5")  # fmt: skip
    assert read(tmp_path / "more.h5").discrete_actions == (KINDS[kind][1] == "discrete")
    run("judge", folder / "data.h5", *env_of(kind), *short, "--methods", "uniform",
        "--out", tmp_path / "judged")  # fmt: skip
    assert (tmp_path / "judged" / "report.html").is_file()


@pytest.mark.parametrize("kind", TRAINED)
def test_train_online(kind, tmp_path):
    choices.register()
    run("train-online", *env_of(kind), *SMALL, "--steps", 200, "--warmup", 150,
        "--eval-every", 200, "--out", tmp_path / "run")  # fmt: skip
    actor = load_actor(tmp_path / "run/members/grd-closed-form-seed0/policies/best")
    assert actor.spec.kind == ("gaussian" if KINDS[kind][1] == "box" else "greedy")
    assert (tmp_path / "run" / "report.html").is_file()


def test_several_choices_are_refused_where_policies_are_trained(data, tmp_path):
    kind = "several choices (MultiDiscrete)"
    file = data(kind) / "data-grd" / "relabelled.h5"
    for command in (("train-offline", file), ("judge", file), ("train-online",)):
        error = run(*command, *env_of(kind), "--out", tmp_path / "run", code=2).exception
        assert isinstance(error, DataError)
        assert "one choice" in str(error)
    assert not (tmp_path / "run").exists()


def test_data_without_actions_are_refused_where_policies_are_trained():
    steps = 3
    flags = np.zeros(steps, np.bool_)
    empty = np.zeros((steps, 0), np.float32)
    one = Episode(np.zeros((steps + 1, 2)), empty, np.zeros(steps), flags, flags, flags)
    with pytest.raises(DataError, match="actions: the data have none: they can be decomposed, but"):
        check_actions(EpisodeSet.from_episodes([one]))


@pytest.mark.parametrize("command", ["collect", "train-online"])
def test_images_are_refused_in_a_line_that_says_what_to_do(command, tmp_path):
    choices.register()
    error = run(command, "--env", choices.ID, "--env-arg", "observed=image", "--out",
                tmp_path / "x", code=2).exception  # fmt: skip
    assert isinstance(error, DataError)
    assert "images of shape (8, 8, 3) are not supported" in str(error)
    assert "embeddings" in str(error)


def test_the_page_lists_every_kind():
    page = (ROOT / "docs" / "support.md").read_text()
    assert all(f"| {kind} " in page for kind in (*KINDS, "no actions", "images"))
