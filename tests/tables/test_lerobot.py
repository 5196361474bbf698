"""LeRobot folders of version 3, read with pyarrow alone; rewards come back by episode and frame."""

import json

import numpy as np
import pytest

from grd_offline import DataError, DecomposeSettings, decompose, read
from grd_offline.formats import open_recording

pyarrow = pytest.importorskip("pyarrow")


def write_lerobot(folder, *, episodes=12, version="v3.0", outcome="next.success"):
    """Two files of frames, as LeRobot writes them: lists of numbers, and their names in meta."""
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    rows = []
    for episode in range(episodes):
        steps = int(rng.integers(4, 9))
        for frame in range(steps):
            state, action = rng.normal(size=3), rng.normal(size=2)
            end = frame == steps - 1
            paid = bool(end and episode % 2) if outcome == "next.success" else float(state[0])
            rows.append((state, action, frame / 10, frame, episode, len(rows), 0, end, paid))
    lists = pyarrow.list_(pyarrow.float32())
    names = ("observation.state", "action", "timestamp", "frame_index", "episode_index", "index",
             "task_index", "next.done", outcome)  # fmt: skip
    arrays = [
        pyarrow.array([row[k] for row in rows], lists if k < 2 else None) for k in range(len(names))
    ]
    table = pyarrow.table(arrays, list(names))
    (folder / "data" / "chunk-000").mkdir(parents=True)
    half = len(rows) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        parquet.write_table(part, folder / "data" / "chunk-000" / f"file-{number:03d}.parquet")
    (folder / "meta").mkdir()
    info = {
        "codebase_version": version,
        "features": {
            "observation.state": {"dtype": "float32", "shape": [3], "names": ["x", "y", "z"]},
            "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["left", "right"]}},
            "observation.images.top": {"dtype": "video", "shape": [480, 640, 3], "names": None},
        },
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    return table


def test_frames_become_episodes(tmp_path):
    table = write_lerobot(tmp_path / "pick")
    episodes = read(tmp_path / "pick")
    assert len(episodes) == 12
    assert episodes.observation_names == tuple(f"observation.state.{n}" for n in "xyz")
    assert episodes.action_names == ("action.left", "action.right")
    first = np.array(table["observation.state"].to_pylist()[: len(episodes[0])], np.float32)
    np.testing.assert_array_equal(episodes[0].observations, first)
    # Success in one frame counts for the episode.
    np.testing.assert_array_equal(episodes.compute_returns(), np.arange(12) % 2)
    with open_recording(tmp_path / "pick") as recording:
        assert recording.layout == "lerobot"


def test_results_lie_beside_by_episode_and_frame(tmp_path):
    from pyarrow import parquet

    table = write_lerobot(tmp_path / "pick", outcome="next.reward")
    settings = DecomposeSettings(method="uniform")
    result = decompose(tmp_path / "pick", tmp_path / "pick-grd", settings)
    rewards = parquet.read_table(tmp_path / "pick-grd" / "relabelled.parquet")
    assert rewards.column_names == ["episode_index", "frame_index", "reward", "spread"]
    for name in ("episode_index", "frame_index"):
        assert rewards[name].to_pylist() == table[name].to_pylist()
    assert result.metrics["data"] == "pick"
    assert (tmp_path / "pick" / "data").is_dir()


def test_other_versions_and_empty_folders_are_refused(tmp_path):
    write_lerobot(tmp_path / "old", version="v2.1")
    with pytest.raises(DataError, match=r"expected a LeRobot dataset of version 3, got 'v2\.1'"):
        read(tmp_path / "old")
    write_lerobot(tmp_path / "none")
    for file in (tmp_path / "none" / "data" / "chunk-000").iterdir():
        file.unlink()
    with pytest.raises(DataError, match="holds no data/chunk"):
        read(tmp_path / "none")
