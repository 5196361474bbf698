"""Links in a dataset of somebody else that lead to other files of this machine are not followed."""

import lerobot_data
import pytest
import samples

from grd_offline import DataError, read, write_dataset
from grd_offline.io.datasets import open_recording


def move_out(path, outside):
    """Put a link in the place of a file, which is now elsewhere."""
    outside.mkdir(exist_ok=True)
    path.rename(outside / path.name)
    path.symlink_to(outside / path.name)


@pytest.mark.parametrize("name", ["main_data.hdf5", "metadata.json"])
def test_minari_folders(tmp_path, name):
    folder = samples.write_minari_by_hand(tmp_path / "minari")
    assert len(read(folder))
    move_out(folder / "data" / name, tmp_path / "outside")
    with pytest.raises(DataError, match="through a link, which is not followed"):
        read(folder)


@pytest.mark.parametrize("name", ["meta/info.json", "data/chunk-000/file-000.parquet"])
def test_lerobot_folders(tmp_path, name):
    folder = tmp_path / "robot"
    lerobot_data.write_lerobot(folder)
    with open_recording(folder) as recording:
        assert len(recording)
    move_out(folder / name, tmp_path / "outside")
    with pytest.raises(DataError, match="through a link, which is not followed"):
        open_recording(folder)


def test_folders_of_parts(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(2):
        out = folder / f"part-{number:05d}.h5"
        write_dataset(out, samples.make_header(), samples.make_records(3, seed=number))
    assert len(read(folder))
    move_out(folder / "part-00001.h5", tmp_path / "outside")
    with pytest.raises(DataError, match="through a link, which is not followed"):
        read(folder)


def test_a_folder_may_itself_be_a_link(tmp_path):
    folder = samples.write_minari_by_hand(tmp_path / "disk")
    (tmp_path / "minari").symlink_to(folder)
    assert len(read(tmp_path / "minari"))
