"""LeRobot folders of version 3, read with pyarrow alone; rewards come back by episode and frame."""

import numpy as np
import pytest
from lerobot_data import write_lerobot

from grd_offline import DataError, DecomposeSettings, decompose, read
from grd_offline.io.datasets import open_recording

pytest.importorskip("pyarrow")


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
