"""Columns with an embedding in each row, and images, which are refused."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from lerobot_data import write_lerobot

from grd_offline import DataError, DecomposeSettings, decompose, from_dataframe, read, relabel
from grd_offline.cli.program import cli
from grd_offline.io.datasets import open_recording

pandas = pytest.importorskip("pandas")
NAMES = ("photo[0]", "photo[1]", "photo[2]")


def make_table(rows=36):
    """Twelve episodes of three steps, and the photos of each row as vectors of three numbers."""
    rng = np.random.default_rng(0)
    photos = rng.normal(size=(rows, 3)).round(3)
    episodes = np.repeat(np.arange(rows // 3), 3)
    score = np.bincount(episodes, photos[:, 0])[episodes]
    columns = {"episode": episodes, "speed": rng.normal(size=rows), "score": score}
    return pandas.DataFrame(columns), photos


def write_csv(path):
    table, photos = make_table()
    table["photo"] = [json.dumps(photo.tolist()) for photo in photos]
    table.to_csv(path, index=False)
    return photos


def test_lists_in_the_cells_of_a_csv_file_become_inputs(tmp_path):
    photos = write_csv(tmp_path / "walks.csv")
    episodes = read(tmp_path / "walks.csv", columns="embed=photo")
    assert episodes.observation_names == ("speed", *NAMES)
    np.testing.assert_allclose(episodes[1].observations[:, 1:], photos[3:6], atol=1e-6)
    # What is embedded is used, whatever else is named.
    named = read(tmp_path / "walks.csv", columns="embed=photo,observations=speed")
    assert named.observation_names == ("speed", *NAMES)


def test_the_command_embeds_and_its_model_takes_the_next_table(tmp_path):
    write_csv(tmp_path / "walks.csv")
    arguments = ["decompose", str(tmp_path / "walks.csv"), "--embed", "photo"]
    out = tmp_path / "walks-grd"
    result = CliRunner().invoke(cli, [*arguments, "--method", "uniform", "--out", str(out)])
    assert result.exit_code == 0, result.output
    masks = json.loads((out / "masks.json").read_text())
    assert masks["state_names"] == ["speed", *NAMES]
    again = relabel(tmp_path / "walks.csv", out, tmp_path / "again.h5")
    assert "embed=photo" in again.columns
    assert again.steps == 36


def test_parquet_lists_are_embedded_with_and_without_the_option(tmp_path):
    table, photos = make_table()
    table["photo"] = list(photos)
    table.to_parquet(tmp_path / "walks.parquet")
    for columns in (None, "embed=photo"):
        assert read(tmp_path / "walks.parquet", columns=columns).observation_names[1:] == NAMES


def test_a_function_makes_vectors_of_cells():
    table, _ = make_table()
    table["photo"] = [np.full((4, 4, 3), index, np.uint8) for index in range(len(table))]
    episodes = from_dataframe(
        table, returns="score", embed={"photo": lambda photo: photo.mean(axis=(0, 1))}
    )
    assert episodes.observation_names == ("speed", *NAMES)
    assert episodes[1].observations[0, 1:].tolist() == [3, 3, 3]
    assert from_dataframe(table[["episode", "score", "photo"]], embed={"photo": np.ravel}
                          ).state_size == 48  # fmt: skip
    for embed, message in (
        ({"photo": lambda photo: 1 / 0}, "row 0: the function of embed failed: ZeroDivisionError"),
        ({"photo": lambda photo: photo}, r"images of shape \(4, 4, 3\) are not supported"),
        (np.ravel, "expected names of columns, or a mapping from names to functions"),
        (["photos"], "there is no column 'photos'; did you mean photo?"),
    ):
        with pytest.raises(DataError, match=message):
            from_dataframe(table, returns="score", embed=embed)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("[1, 2]", "row 7: 2 numbers, the row before has 3"),
        ("0.5", "row 7: expected a list of numbers, got 0.5"),
        ("[1, 2", "row 7: expected a list of numbers, got '[1, 2'"),
        ('[1, "x", 2]', "expected lists of numbers"),
        ("", "row 7: expected a list of numbers, got None"),
    ],
)
def test_cells_that_hold_no_embedding_are_refused_in_one_line(tmp_path, cell, message):
    table, photos = make_table()
    table["photo"] = [json.dumps(photo.tolist()) for photo in photos]
    table.loc[5, "photo"] = cell
    table.to_csv(tmp_path / "walks.csv", index=False)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read(tmp_path / "walks.csv", columns="embed=photo")
    assert "column photo" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_are_refused_and_the_way_out_is_named(tmp_path):
    table, _ = make_table()
    table["photo"] = [np.zeros((4, 4, 3), np.uint8)] * len(table)
    with pytest.raises(DataError, match=r"column photo: images .* put embeddings .*--embed NAME"):
        from_dataframe(table, returns="score")
    table["photo"] = [[[[0, 1, 2]] * 4] * 4] * len(table)
    table.to_parquet(tmp_path / "walks.parquet")
    with pytest.raises(DataError, match=r"column photo: images .* put embeddings"):
        read(tmp_path / "walks.parquet")


def test_images_of_lerobot_are_left_out_unless_they_are_asked_for(tmp_path):
    write_lerobot(tmp_path / "pick")
    with open_recording(tmp_path / "pick") as recording:
        assert "images" not in str(recording.header)
    with pytest.raises(DataError, match=r"observation.images.top: images are not supported"):
        read(tmp_path / "pick", columns="observations=observation.images.top")
    settings = DecomposeSettings(method="uniform")
    assert decompose(tmp_path / "pick", tmp_path / "pick-grd", settings).table is not None
