"""`minari:ID`: datasets that Minari's own library keeps, lists and downloads."""

import re
import shutil

import forked
import minari
import numpy as np
import pytest
import samples
from gymnasium.spaces import Box
from minari.data_collector import EpisodeBuffer

import grd_offline
from grd_offline import DataError
from grd_offline.io.datasets import list_minari_datasets

pytestmark = pytest.mark.long

ID = "test/pendulum/random-v0"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """An empty library of Minari, on a computer without a network."""
    folder = tmp_path / "library"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    monkeypatch.setattr(minari, "download_dataset", refuse)
    monkeypatch.setattr(minari, "list_remote_datasets", refuse)
    return folder


def refuse(*_, **__):
    raise ConnectionError("the network\nis unreachable")


def create_dataset():
    """A dataset of random numbers, which Minari writes itself."""
    generator = np.random.default_rng(0)
    buffers = [
        EpisodeBuffer(
            id=number,
            observations=generator.normal(size=(13, 3)).astype(np.float32),
            actions=generator.uniform(-1, 1, (12, 2)).astype(np.float32),
            rewards=generator.normal(size=12),
            terminations=np.zeros(12, np.bool_),
            truncations=np.arange(12) == 11,
        )
        for number in range(3)
    ]
    return minari.create_dataset_from_buffers(
        ID,
        buffers,
        observation_space=Box(-np.inf, np.inf, (3,)),
        action_space=Box(-1, 1, (2,)),
        algorithm_name="random",
        description="Random numbers.",
    )


@pytest.mark.filterwarnings("ignore")
def test_a_dataset_of_this_computer_is_opened(library):
    dataset = create_dataset()
    with grd_offline.open_recording(f"minari:{ID}") as recording:
        assert recording.layout == "minari"
        assert recording.lengths.tolist() == [12, 12, 12]
        for ours, theirs in zip(recording, dataset, strict=True):
            np.testing.assert_array_equal(ours.observations[""], theirs.observations)
            np.testing.assert_array_equal(ours.rewards, theirs.rewards)
    assert list_minari_datasets() == [ID]
    done = forked.run("inspect", f"minari:{ID}")
    assert done.returncode == 0, done.stderr
    assert re.search(r"layout +minari", done.stdout)


def test_a_dataset_that_is_not_here_is_downloaded(library, monkeypatch, capfd):
    asked = []

    def download(identifier):
        asked.append(identifier)
        print("Downloading", identifier)
        samples.write_minari_by_hand(library / identifier)

    monkeypatch.setattr(minari, "download_dataset", download)
    assert len(grd_offline.read(f"minari:{ID}")) == 4
    assert len(grd_offline.read(f"minari:{ID}")) == 4
    assert asked == [ID]
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", f"Downloading {ID}\n")


def test_an_unknown_id_is_told_with_the_nearest_ones(library, monkeypatch):
    def download(identifier):
        raise ValueError(f"Couldn't find any version for dataset {identifier}.")

    monkeypatch.setattr(minari, "download_dataset", download)
    with pytest.raises(DataError, match=r"^minari:no/such-v0: no Minari dataset has this id$"):
        grd_offline.read("minari:no/such-v0")
    local = {"test/pendulum/random-v0": {}, "test/hopper/expert-v1": {}}
    monkeypatch.setattr(minari, "list_local_datasets", lambda prefix=None: local)
    with pytest.raises(DataError, match=r"did you mean test/pendulum/random-v0\?$"):
        grd_offline.read("minari:test/pendulum/randon-v0")
    with pytest.raises(DataError, match="on this computer are test/hopper/expert-v1, test/pend"):
        grd_offline.read("minari:")
    remote = {"D4RL/door/human-v2": {}}
    monkeypatch.setattr(
        minari, "list_remote_datasets", lambda prefix: remote if prefix == "D4RL/door" else {}
    )
    with pytest.raises(DataError, match=r"did you mean D4RL/door/human-v2\?$"):
        grd_offline.read("minari:D4RL/door/humans-v2")
    assert list_minari_datasets(remote=True, prefix="D4RL/door") == ["D4RL/door/human-v2"]


def test_without_a_network_the_error_is_one_line(library):
    with pytest.raises(DataError) as caught:
        grd_offline.read(f"minari:{ID}")
    assert str(caught.value) == (
        f"minari:{ID}: is not on this computer and cannot be downloaded: the network is unreachable"
    )


def test_a_download_that_was_interrupted_is_told(library, monkeypatch):
    samples.write_minari_by_hand(library / ID)
    shutil.rmtree(library / ID / "data")
    monkeypatch.setattr(minari, "download_dataset", lambda identifier: None)
    with pytest.raises(DataError, match=r"no HDF5 file in .*delete the folder"):
        grd_offline.read(f"minari:{ID}")
