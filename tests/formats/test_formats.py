"""Every readable layout into every writable one and back: nothing is lost."""

import json
import re
from dataclasses import replace

import h5py
import numpy as np
import pytest
import samples

from grd_offline import DataError, read, read_truth
from grd_offline.io.datasets import Leaf, open_recording, write_dataset


def own(folder):
    write_dataset(folder / "own.h5", samples.make_header(), samples.make_records())
    return folder / "own.h5"


def own_discrete(folder):
    header = samples.make_header(discrete=True)
    write_dataset(folder / "own.h5", header, samples.make_records(discrete=True))
    return folder / "own.h5"


def own_without_final(folder):
    records = samples.make_records(final=False)
    write_dataset(folder / "own.h5", samples.make_header(), records)
    return folder / "own.h5"


def own_without_actions(folder):
    header = replace(samples.make_header(), action_leaves=(Leaf("", (0,), "float32"),))
    records = [
        replace(record, actions={"": np.zeros((len(record.rewards), 0), np.float32)})
        for record in samples.make_records()
    ]
    write_dataset(folder / "own.h5", header, records)
    return folder / "own.h5"


def d4rl(folder):
    return samples.write_flat(folder / "flat.hdf5", samples.flat_arrays())


def d4rl_next(folder):
    arrays = samples.flat_arrays()
    following = np.roll(arrays["observations"], -1, axis=0)
    following[[19, 34, 59]] += 1  # the true last observations, not the next episode's first
    arrays["next_observations"] = following
    arrays["infos/qpos"] = np.random.default_rng(1).normal(size=(60, 5))
    return samples.write_flat(folder / "flat.hdf5", arrays, compression="gzip")


def d3rlpy_v1(folder):
    arrays = samples.flat_arrays()
    arrays["episode_terminals"] = arrays["terminals"] | arrays.pop("timeouts")
    return samples.write_flat(folder / "v1.h5", arrays)


SOURCES = {
    "own": own,
    "own discrete": own_discrete,
    "own without last observation": own_without_final,
    "own without actions": own_without_actions,
    "minari": lambda folder: samples.write_minari_by_hand(folder / "minari"),
    "minari nested": lambda folder: samples.write_minari_by_hand(folder / "minari", nested=True),
    "d4rl": d4rl,
    "d4rl with next observations": d4rl_next,
    "d3rlpy 1": d3rlpy_v1,
    "d3rlpy": lambda folder: samples.write_d3rlpy_by_hand(folder / "d3.h5"),
    "d3rlpy discrete": lambda folder: samples.write_d3rlpy_by_hand(folder / "d3.h5", discrete=True),
    "d3rlpy nested": lambda folder: samples.write_d3rlpy_by_hand(folder / "d3.h5", nested=True),
    "robomimic": lambda folder: samples.write_robomimic_by_hand(folder / "lift.hdf5"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_rewards_keep_the_digits_of_the_file(source, tmp_path):
    """A constant of a million leaves float32 one digit after the point."""
    path = SOURCES[source](tmp_path)
    with open_recording(path) as recording:
        expected = [
            np.where(record.rewards, record.rewards.astype(np.float64) + 1e6, 0)
            for record in recording
        ]
    _move_rewards(path / "data" / "main_data.hdf5" if path.is_dir() else path, 1e6)
    for episode, rewards in zip(read(path), expected, strict=True):
        np.testing.assert_array_equal(episode.rewards, rewards)


def _move_rewards(path, constant):
    """Add a constant to every reward that is not zero, in float64."""
    found = []
    with h5py.File(path, "r+") as file:
        file.visit(
            lambda name: found.append(name) if re.search(r"(^|/)rewards(_|$)", name) else None
        )
        for name in found:
            rewards = file[name][()].astype(np.float64)
            del file[name]
            file[name] = np.where(rewards, rewards + constant, 0)


def test_rewards_in_float32_keep_their_values(tmp_path):
    arrays = samples.flat_arrays()
    episodes = read(samples.write_flat(tmp_path / "flat.hdf5", arrays))
    found = np.concatenate([episode.rewards for episode in episodes])
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, arrays["rewards"])


@pytest.mark.parametrize("layout", ["own", "minari", "d4rl"])
@pytest.mark.parametrize("source", SOURCES)
def test_there_and_back_loses_nothing(source, layout, tmp_path):
    path = SOURCES[source](tmp_path)
    with open_recording(path) as recording:
        header = recording.header
        records = [replace(record, extras=dict(record.extras)) for record in recording]
        write_dataset(
            tmp_path / "there", header, recording, layout=layout, lengths=recording.lengths
        )
    with open_recording(tmp_path / "there") as there:
        assert there.layout == layout
        assert there.header == header
        for got, expected in zip(there, records, strict=True):
            samples.assert_same_record(got, expected)
        write_dataset(tmp_path / "back.h5", there.header, there)
    with open_recording(tmp_path / "back.h5") as back:
        assert back.header == header
        for got, expected in zip(back, records, strict=True):
            samples.assert_same_record(got, expected)


@pytest.mark.parametrize("nested", [False, True])
def test_minari_itself_loads_what_we_wrote(nested, tmp_path):
    minari = pytest.importorskip("minari")
    source = samples.write_minari_by_hand(tmp_path / "source", nested=nested)
    with open_recording(source) as recording:
        write_dataset(tmp_path / "ours", recording.header, recording, layout="minari")
    theirs, ours = (
        list(minari.MinariDataset(tmp_path / name / "data")) for name in ("source", "ours")
    )
    assert len(ours) == len(theirs) == 4
    for left, right in zip(ours, theirs, strict=True):
        for field in ("observations", "actions", "rewards", "terminations", "truncations", "infos"):
            _assert_same_tree(getattr(left, field), getattr(right, field))


def _assert_same_tree(left, right):
    if isinstance(right, dict):
        assert left.keys() == right.keys()
        for key in right:
            _assert_same_tree(left[key], right[key])
    elif isinstance(right, tuple):
        for a, b in zip(left, right, strict=True):
            _assert_same_tree(a, b)
    else:
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_minari_loads_our_own_data_with_its_true_rewards_beside(tmp_path):
    minari = pytest.importorskip("minari")
    records = samples.make_records()
    write_dataset(tmp_path / "example", samples.make_header(), records, layout="minari")
    dataset = minari.MinariDataset(tmp_path / "example" / "data")
    assert dataset.total_episodes == 5
    assert dataset.id == "example-v0"
    for episode, record in zip(dataset, records, strict=True):
        np.testing.assert_array_equal(episode.observations, record.observations[""])
        np.testing.assert_array_equal(episode.rewards, record.rewards)
    np.testing.assert_array_equal(
        read_truth(tmp_path / "example")[2], records[2].extras["true_rewards"]
    )


def test_minari_metadata_never_runs_code(tmp_path):
    folder = samples.write_minari_by_hand(tmp_path / "evil")
    file = folder / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    marker = tmp_path / "ran"
    spec = {"id": "Evil-v0", "entry_point": "os:system", "kwargs": {"command": f"touch {marker}"}}
    metadata["env_spec"] = json.dumps(spec)
    del metadata["observation_space"]
    file.write_text(json.dumps(metadata))
    episodes = read(folder)
    assert episodes.environment == "Evil-v0"
    assert sum(len(episode) for episode in episodes) == episodes.total_steps
    with open_recording(folder) as recording:
        write_dataset(tmp_path / "copy", recording.header, recording, layout="minari")
    copied = json.loads((tmp_path / "copy" / "data" / "metadata.json").read_text())
    assert "observation_space" in copied  # so that Minari has no reason to build the environment
    assert not marker.exists()


def test_a_corl_style_loop_gets_the_right_next_observations(tmp_path):
    records = samples.make_records()
    lengths = np.array([len(record.rewards) for record in records])
    write_dataset(
        tmp_path / "flat.h5", samples.make_header(), records, layout="d4rl", lengths=lengths
    )
    with h5py.File(tmp_path / "flat.h5") as file:
        data = {name: file[name][()] for name in file if isinstance(file[name], h5py.Dataset)}
    ends = data["terminals"] | data["timeouts"]
    row = 0
    for record in records:
        observations = record.observations[""]
        for step in range(len(record.rewards)):
            np.testing.assert_array_equal(data["observations"][row], observations[step])
            np.testing.assert_array_equal(data["next_observations"][row], observations[step + 1])
            assert data["terminals"][row] == record.terminations[step]
            assert ends[row] == (step == len(record.rewards) - 1)
            row += 1
    assert row == len(data["rewards"])


def test_a_flat_file_without_timeouts_asks_how_long_episodes_are(tmp_path):
    arrays = samples.flat_arrays()
    del arrays["timeouts"]
    path = samples.write_flat(tmp_path / "flat.h5", arrays)
    with pytest.raises(DataError, match=r"timeouts: is missing.*--max-episode-steps"):
        read(path)
    assert read(path, max_episode_steps=20).lengths.tolist() == [20, 15, 20, 5]


def test_demonstrations_come_in_the_order_of_their_numbers(tmp_path):
    path = samples.write_robomimic_by_hand(tmp_path / "lift.hdf5")
    episodes = read(path)
    assert episodes.lengths.tolist() == list(range(4, 16))
    assert episodes.observation_names == ("arm[0]", "arm[1]", "arm[2]", "cube[0]", "cube[1]")
    assert episodes[3].has_final_observation
    assert episodes[3].terminations[-1]


def test_nested_observations_flatten_with_names_and_choices_become_one_hot(tmp_path):
    folder = samples.write_minari_by_hand(tmp_path / "nested", nested=True)
    episodes = read(folder)
    assert episodes.discrete_actions
    assert episodes.observation_names == (
        *("goal[0]", "goal[1]", "level=0", "level=1", "level=2"),
        *("pair/_index_0", "pair/_index_1"),
    )
    assert episodes.action_names == ("a=0", "a=1", "a=2", "a=3", "a=4")
    with h5py.File(folder / "data" / "main_data.hdf5") as file:
        level = file["episode_1/observations/level"][()]
        action = file["episode_1/actions"][()]
    episode = episodes[1]
    np.testing.assert_array_equal(episode.observations[:, 2:5].argmax(axis=1), level)
    np.testing.assert_array_equal(episode.actions, np.eye(5)[action])


@pytest.mark.parametrize(
    ("rewards", "delay"),
    [
        ([0, 0, 0, 0, 0, 5], "end"),
        ([0, 0, 0, 0, 0, 0], "end"),
        ([0, 2, 0, 3, 0, 4], 2),
        ([1, 2, 0, 3, 1, 4], "step"),
        ([0, 0, 1, 1, 0, 0], "step"),
    ],
)
def test_when_rewards_arrive_is_seen_from_the_zeros(rewards, delay, tmp_path):
    from grd_offline.io.datasets import find_delay

    arrays = samples.flat_arrays()
    arrays["rewards"] = np.tile(np.array(rewards, np.float32), 10)
    arrays["timeouts"] = np.arange(60) % 6 == 5
    arrays["terminals"][:] = False
    path = samples.write_flat(tmp_path / "flat.h5", arrays)
    with open_recording(path) as recording:
        assert find_delay(recording) == delay
    episode = read(path)[0]
    expected = {"end": [5], "step": range(6), 2: [1, 3, 5]}[delay]
    assert np.flatnonzero(episode.delivered).tolist() == list(expected)
    assert read(path, delay="step")[0].delivered.all()


def test_an_unfinished_tail_is_kept_but_delivers_nothing(tmp_path):
    arrays = samples.flat_arrays()
    arrays["timeouts"][-1] = False
    arrays["rewards"][:] = 0
    arrays["rewards"][[19, 34]] = 1
    path = samples.write_flat(tmp_path / "flat.h5", arrays)
    with open_recording(path) as recording:
        assert "last 25 steps end with neither" in recording.warnings[0]
    tail = read(path)[2]
    assert not tail.terminations[-1]
    assert not tail.truncations[-1]
    assert not tail.delivered.any()


def test_the_truth_is_apart_from_the_episodes(tmp_path):
    path = own(tmp_path)
    with open_recording(path) as recording:
        expected = [record.extras["true_rewards"] for record in recording]
    for got, truth in zip(read_truth(path), expected, strict=True):
        np.testing.assert_array_equal(got, truth)
    episode = read(path)[0]
    assert not any("true" in name for name in dir(episode) + dir(read(path)))
    with pytest.raises(DataError, match="no_such: is missing; further fields here: infos/contact"):
        read_truth(path, "no_such")


def test_a_flat_file_cannot_hold_what_is_not_in_every_episode(tmp_path):
    records = samples.make_records()
    del records[3].extras["true_rewards"]
    lengths = np.array([len(record.rewards) for record in records])
    with pytest.raises(DataError, match="episode 3: true_rewards: is not in every episode"):
        write_dataset(
            tmp_path / "flat.h5", samples.make_header(), records, layout="d4rl", lengths=lengths
        )
    assert list(tmp_path.iterdir()) == []


def test_another_format_version_is_refused(tmp_path):
    path = own(tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs["grd_offline_format"] = 2
    with pytest.raises(DataError, match="format 2, this one reads format 1"):
        read(path)
