"""d3rlpy pins another Gymnasium: `make test-d3rlpy` runs this in an environment of its own."""

import re
import runpy
import sys

import numpy as np
import pytest
import worlds
from places import ROOT

from grd_offline import DecomposeSettings, RewardModel, decompose_file
from grd_offline.interop import to_d3rlpy
from grd_offline.io.datasets import Header, Leaf, Record, write_dataset

d3rlpy = pytest.importorskip(
    "d3rlpy", reason="d3rlpy pins another Gymnasium: make test-d3rlpy runs these tests"
)


def write_counted(path, *, discrete=False):
    """Observation k of episode e is 100 e + k; ends: terminated, truncated, both, neither."""
    records = []
    for number, (length, ends) in enumerate(((3, (1, 0)), (2, (0, 1)), (2, (1, 1)), (4, (0, 0)))):
        last = np.arange(length) == length - 1
        rows = 100 * number + np.arange(length + 1)
        actions = np.arange(length) % 3 + 5 if discrete else rows[:-1, None].astype(np.float32)
        records.append(
            Record(
                observations={"": rows[:, None].astype(np.float32)},
                actions={"": actions},
                rewards=rows[:-1] + 0.5,
                terminations=last & bool(ends[0]),
                truncations=last & bool(ends[1]),
                extras={"observed_rewards": last * 7.0},
            )
        )
    action = Leaf("", (), "int64", (3,), (5,)) if discrete else Leaf("", (1,), "float32")
    header = Header(observation_leaves=(Leaf("", (1,), "float32"),), action_leaves=(action,))
    lengths = np.array([len(record.rewards) for record in records])
    write_dataset(path, header, records, layout="own", lengths=lengths)
    return path


def test_episodes_are_aligned(tmp_path):
    dataset = to_d3rlpy(write_counted(tmp_path / "data.h5"))
    assert [episode.size() for episode in dataset.episodes] == [3, 2, 2, 4]
    assert [episode.terminated for episode in dataset.episodes] == [True, False, True, False]
    for number, episode in enumerate(dataset.episodes):
        expected = 100 * number + np.arange(episode.size())[:, None]
        np.testing.assert_array_equal(episode.observations, expected)
        np.testing.assert_array_equal(episode.actions, expected)
        np.testing.assert_array_equal(episode.rewards, expected + 0.5)


def test_transitions_stay_within_their_episode(tmp_path):
    dataset = to_d3rlpy(write_counted(tmp_path / "data.h5"))
    picked = [
        dataset.transition_picker(episode, index)
        for episode in dataset.episodes
        for index in range(episode.transition_count)
    ]
    # One per step, less the last of the two episodes that did not terminate.
    assert len(picked) == 3 + 1 + 2 + 3
    for transition in picked:
        assert transition.reward == transition.observation + 0.5
        if not transition.terminal:
            assert transition.next_observation == transition.observation + 1
    assert [t.observation[0] for t in picked if t.terminal] == [2, 201]


def test_other_rewards_and_discrete_actions(tmp_path):
    path = write_counted(tmp_path / "data.h5", discrete=True)
    dataset = to_d3rlpy(path, rewards="observed_rewards")
    assert dataset.dataset_info.action_space == d3rlpy.constants.ActionSpace.DISCRETE
    assert dataset.dataset_info.action_size == 3
    assert dataset.episodes[3].actions.ravel().tolist() == [0, 1, 2, 0]
    assert [float(episode.rewards.sum()) for episode in dataset.episodes] == [7.0] * 4


def test_iql_trains_on_relabelled_data(tmp_path):
    path = worlds.write_world(tmp_path / "data.h5", worlds.make_world(), 20)
    folder = decompose_file(path, tmp_path / "grd", DecomposeSettings(fit="closed-form")).folder
    dataset = to_d3rlpy(folder)
    model, episode = RewardModel.load(folder), dataset.episodes[1]
    expected = model.predict(episode.observations, episode.actions)
    np.testing.assert_allclose(episode.rewards[:, 0], expected, rtol=1e-4, atol=1e-4)
    d3rlpy.seed(0)  # some networks begin where all actions are at their bounds, and stay there
    agent = d3rlpy.algos.IQLConfig(batch_size=32).create(device="cpu:0")
    agent.build_with_dataset(dataset)
    before = agent.predict(episode.observations)
    agent.fit(
        dataset,
        n_steps=20,
        n_steps_per_epoch=20,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    after = agent.predict(episode.observations)
    assert after.shape == episode.actions.shape
    assert np.isfinite(after).all()
    assert (after != before).any()


def test_the_example_runs(tmp_path, monkeypatch, capfd):
    root = ROOT
    decompose_file(root / "datasets" / "sample.h5", tmp_path / "sample-grd", DecomposeSettings())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["d3rlpy_iql", "sample-grd"])
    runpy.run_path(str(root / "examples" / "d3rlpy_iql.py"), run_name="__main__")
    assert "an action for each of" in capfd.readouterr().out


def test_the_snippet_on_the_page_runs(tmp_path, monkeypatch):
    root = ROOT
    decompose_file(root / "datasets" / "sample.h5", tmp_path / "sample-grd", DecomposeSettings())
    monkeypatch.chdir(tmp_path)
    page = (root / "docs" / "interop.md").read_text()
    (snippet,) = (s for s in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "d3rlpy" in s)
    names = {}
    exec(snippet, names)
    assert len(names["dataset"].episodes) == 80
