"""Data without actions go through every command that reads them."""

import numpy as np
import pytest
from browser import Browser, is_missing
from click.testing import CliRunner

from grd_offline import RewardModel, read
from grd_offline.cli.program import cli
from grd_offline.io.datasets import Header, Leaf, Record, write_dataset

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A decomposition of 60 episodes with three states, no actions and the reward a²."""
    place = tmp_path_factory.mktemp("no-actions")
    rng = np.random.default_rng(0)
    header = Header(
        (Leaf("", (3,), "float32"),),
        (Leaf("", (0,), "float32"),),
        observation_names=("a", "b", "c"),
        delay="end",
    )

    def make(steps):
        states = rng.normal(size=(steps, 3)).astype(np.float32)
        last = np.arange(steps) == steps - 1
        rewards = last * float((states[:, 0] ** 2).sum())
        empty = np.zeros((steps, 0), np.float32)
        return Record({"": states}, {"": empty}, rewards, np.zeros(steps, np.bool_), last)

    write_dataset(place / "data.h5", header, map(make, rng.integers(5, 20, 60)))
    run("decompose", place / "data.h5")
    return place / "data-grd"


def run(*arguments):
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_reward_is_found(folder):
    model = RewardModel.load(folder)
    assert model.action_names == ()
    episode = read(folder.parent / "data.h5")[0]
    found = model.predict(episode.observations, episode.actions)
    assert np.corrcoef(found, episode.observations[:, 0] ** 2)[0, 1] > 0.98


def test_commands_take_the_results(folder):
    run("relabel", folder.parent / "data.h5", "--model", folder)
    assert "actions (N, 0)" in run("export", folder, "--to", "onnx")
    assert "masks.png" in run("plot", folder)
    assert "0 dimensions" in run("inspect", folder / "relabelled.h5")


@pytest.mark.skipif(is_missing(), reason="needs Chromium on the PATH")
def test_the_page_draws_a_graph_without_actions(folder):
    with Browser() as browser:
        browser.open(folder / "report.html")
        browser.run(
            "document.querySelectorAll('[role=tabpanel]').forEach((it) => it.hidden = false);"
            "document.querySelector('[data-draw=maps]').scrollIntoView()"
        )
        browser.wait("document.querySelector('[data-draw=maps] svg')")
        assert browser.list_errors() == []
