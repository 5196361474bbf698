"""What somebody put into a folder of results is never removed with it."""

import stat

import pytest
import samples
from decompositions import write_decomposition as write_sample

from grd_offline import DataError, StorageError
from grd_offline.io.datasets import write_dataset
from grd_offline.io.files.models import write_model
from grd_offline.io.files.results import is_replaceable
from grd_offline.io.files.storage import holds_only, replace_folder

OURS = [
    *("plots/returns.png", "plots/rewards.pdf", "reward_model/README.md"),
    *("dynamics_model/model.safetensors", "relabelled.csv", "relabelled/data/metadata.json"),
]
THEIRS = [
    *("plots/mine.png", "plots/returns/mine.png", "reward_model/notes.txt", "thesis.tex"),
    *("relabelled/main_data.hdf5", "dynamics_model/old/model.safetensors", "plots/sub/"),
]


def place(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.mark.parametrize("name", OURS)
def test_a_decomposition_with_its_own_files_may_be_replaced(tmp_path, name):
    folder = write_sample(tmp_path / "grd")
    place(folder / name)
    assert is_replaceable(folder)


@pytest.mark.parametrize("name", THEIRS)
def test_a_file_of_the_user_at_any_depth_stops_a_decomposition(tmp_path, name):
    folder = write_sample(tmp_path / "grd")
    if name.endswith("/"):
        (folder / name).mkdir(parents=True)
    else:
        place(folder / name)
    assert not is_replaceable(folder)


def test_a_file_of_the_user_stops_a_model_and_a_dataset(tmp_path):
    config = {"format": "grd-offline reward model", "version": 1}
    write_model(tmp_path / "model", config, {}, "card")
    write_model(tmp_path / "model", config, {}, "card")
    place(tmp_path / "model" / "sub" / "config.json")
    with pytest.raises(StorageError, match="holds something else"):
        write_model(tmp_path / "model", config, {}, "card")

    def write(path):
        records = samples.make_records(2)
        write_dataset(path, samples.make_header(), records, layout="minari", lengths=[3, 3])

    write(tmp_path / "minari")
    write(tmp_path / "minari")
    place(tmp_path / "minari" / "data" / "notes" / "metadata.json")
    with pytest.raises((StorageError, DataError), match="holds something else"):
        write(tmp_path / "minari")
    assert (tmp_path / "minari" / "data" / "notes" / "metadata.json").exists()


def test_what_comes_while_a_folder_is_being_written_stays(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old.txt").write_text("old")

    def is_ours(path):
        return holds_only(path, ["old.txt", "new.txt"])

    def write():
        with replace_folder(folder, is_replaceable=is_ours) as staging:
            (staging / "new.txt").touch()
            (folder / "thesis.tex").write_text("precious")

    with pytest.raises(StorageError, match="holds something else"):
        write()
    assert (folder / "thesis.tex").read_text() == "precious"
    assert {entry.name for entry in tmp_path.iterdir()} == {"out"}


def test_a_folder_keeps_its_rights(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    with replace_folder(folder, is_replaceable=lambda _: True) as staging:
        (staging / "new.txt").touch()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "new.txt").exists()
