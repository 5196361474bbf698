"""Small datasets in every layout, built with nothing but h5py, as other libraries write them."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import h5py
import numpy as np

from grd_offline.io.datasets import Header, Leaf, Record

STATES, ACTIONS = 4, 2


def make_records(count=5, *, final=True, seed=0, extras=True, discrete=False):
    """Records of unequal lengths with one number at the end."""
    rng = np.random.default_rng(seed)
    return [
        make_record(rng, int(rng.integers(3, 12)), final, extras, discrete) for _ in range(count)
    ]


def make_record(rng, steps, final=True, extras=True, discrete=False):
    ends = np.arange(steps) == steps - 1
    terminated = bool(rng.integers(2))
    actions = rng.integers(0, 3, steps) if discrete else rng.normal(size=(steps, ACTIONS))
    further = {
        "true_rewards": rng.normal(size=steps),
        "infos/position": rng.normal(size=(steps + 1, 2)).astype(np.float32),
        "infos/contact/left": rng.integers(0, 2, steps).astype(np.bool_),
    }
    return Record(
        observations={"": rng.normal(size=(steps + final, STATES)).astype(np.float32)},
        actions={"": actions if discrete else actions.astype(np.float32)},
        rewards=ends * rng.normal(),
        terminations=ends & terminated,
        truncations=ends & (not terminated),
        extras=further if extras else {},
        attributes={"seed": int(rng.integers(1000))},
    )


def make_header(*, discrete=False):
    choices = Leaf("", (), "int64", (3,))
    return Header(
        observation_leaves=(Leaf("", (STATES,), "float32"),),
        action_leaves=(choices if discrete else Leaf("", (ACTIONS,), "float32"),),
        observation_names=("height", "angle", "speed", "spin"),
        environment="Example-v0",
        delay="end",
        settings={"policy": "random", "seed": 3},
        truth={"masks": {"state_to_reward": [1, 0, 1, 0]}},
    )


def write_minari_by_hand(folder: Path, *, seed=0, metadata=True, nested=False):
    """A Minari folder with float64 observations, as Minari itself writes them."""
    rng = np.random.default_rng(seed)
    data = folder / "data"
    data.mkdir(parents=True)
    total = 0
    with h5py.File(data / "main_data.hdf5", "w", track_order=True) as file:
        for index in range(4):
            steps = int(rng.integers(3, 9))
            total += steps
            group = file.create_group(f"episode_{index}")
            group.attrs.update({"id": index, "total_steps": steps, "seed": 10 + index})
            if nested:
                group["observations/goal"] = rng.normal(size=(steps + 1, 2))
                group["observations/level"] = rng.integers(0, 3, steps + 1)
                group["observations/pair/_index_0"] = rng.normal(size=(steps + 1, 1))
                group["observations/pair/_index_1"] = rng.normal(size=steps + 1).astype(np.float32)
                group["actions"] = rng.integers(0, 5, steps)
            else:
                group["observations"] = rng.normal(size=(steps + 1, 3))
                group["actions"] = rng.normal(size=(steps, 2)).astype(np.float32)
            group["rewards"] = rng.normal(size=steps)
            group["terminations"] = np.zeros(steps, np.bool_)
            group["truncations"] = np.arange(steps) == steps - 1
            group["infos/x"] = rng.normal(size=steps + 1)
    if metadata:
        (data / "metadata.json").write_text(json.dumps(_minari_metadata(total, nested)))
    return folder


def _minari_metadata(total, nested):
    def box(size, dtype):
        bounds = [float("inf")] * size
        return {
            "type": "Box",
            "dtype": dtype,
            "shape": [size],
            "low": [-bound for bound in bounds],
            "high": bounds,
        }

    observation, action = box(3, "float64"), box(2, "float32")
    if nested:
        scalar = {"type": "Box", "dtype": "float32", "shape": [], "low": -1e9, "high": 1e9}
        pair = {"type": "Tuple", "subspaces": [box(1, "float64"), scalar]}
        level = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}
        subspaces = {"goal": box(2, "float64"), "level": level, "pair": pair}
        observation = {"type": "Dict", "subspaces": subspaces}
        action = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 5}
    return {
        "total_episodes": 4,
        "total_steps": total,
        "data_format": "hdf5",
        "observation_space": json.dumps(observation),
        "action_space": json.dumps(action),
        "dataset_id": "test/example-v0",
        "minari_version": version("minari"),
        "author": ["somebody"],
    }


def flat_arrays(seed=0, steps=60, states=3, actions=2):
    """The arrays of a D4RL file: three episodes, the second one terminated, no unfinished tail."""
    rng = np.random.default_rng(seed)
    terminals, timeouts = np.zeros(steps, np.bool_), np.zeros(steps, np.bool_)
    timeouts[[19, steps - 1]] = True
    terminals[34] = True
    return {
        "observations": rng.normal(size=(steps, states)).astype(np.float32),
        "actions": rng.normal(size=(steps, actions)).astype(np.float32),
        "rewards": rng.normal(size=steps).astype(np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
    }


def write_flat(path: Path, arrays, *, compression=None):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression=compression)
    return path


def write_d3rlpy_by_hand(path: Path, *, discrete=False, nested=False):
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"] = 12
        file["version"] = "2.1"
        for index in range(12):
            steps = int(rng.integers(2, 9))
            if nested:
                file[f"observations_{index}_0"] = rng.normal(size=(steps, 3)).astype(np.float32)
                file[f"observations_{index}_1"] = rng.normal(size=(steps, 2)).astype(np.float32)
            else:
                file[f"observations_{index}"] = rng.normal(size=(steps, 3)).astype(np.float32)
            actions = rng.integers(0, 4, (steps, 1)) if discrete else rng.normal(size=(steps, 2))
            file[f"actions_{index}"] = actions
            file[f"rewards_{index}"] = rng.normal(size=(steps, 1))
            file[f"terminated_{index}"] = bool(index % 2)
    return path


def write_robomimic_by_hand(path: Path):
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift"})
        for index in range(12):
            steps = 4 + index
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"] = steps
            demo.attrs["model_file"] = "<mujoco/>"
            arm = rng.normal(size=(steps + 1, 3))
            cube = rng.normal(size=(steps + 1, 2))
            demo["obs/arm"], demo["next_obs/arm"] = arm[:-1], arm[1:]
            demo["obs/cube"], demo["next_obs/cube"] = cube[:-1], cube[1:]
            demo["actions"] = rng.normal(size=(steps, 2))
            demo["rewards"] = (np.arange(steps) == steps - 1).astype(np.float64)
            demo["dones"] = (np.arange(steps) >= steps - 2).astype(np.int64)
            demo["states"] = rng.normal(size=(steps, 6))
        file["mask/train"] = np.array([b"demo_0", b"demo_1"])
    return path


def assert_same_record(got: Record, expected: Record) -> None:
    """Every array equal in value, shape and dtype, and every attribute."""
    for field in ("observations", "actions", "extras"):
        left, right = getattr(got, field), getattr(expected, field)
        assert set(left) == set(right), field
        for path in right:
            _assert_same_array(left[path], right[path], f"{field}/{path}")
    for field in ("rewards", "terminations", "truncations"):
        _assert_same_array(getattr(got, field), getattr(expected, field), field)
    assert dict(got.attributes) == dict(expected.attributes)


def _assert_same_array(left, right, name):
    assert left.dtype == right.dtype, name
    np.testing.assert_array_equal(left, right, err_msg=name)
