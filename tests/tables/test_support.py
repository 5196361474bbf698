"""Every cell of the table of docs/files.md that says what can be done with which data."""

import json
import re

import lerobot_data
import numpy as np
import pytest
import samples
import trips
from click.testing import CliRunner
from places import ROOT
from small_networks import small_networks

import grd_offline
from grd_offline import DecomposeSettings
from grd_offline.cli.program import cli
from grd_offline.io.datasets import write_dataset

COMMANDS = ("inspect", "decompose", "relabel", "export", "report", "train-offline", "train-online")
OPTIONS = ("--columns", "returns=fuel,actions=throttle,step=minute")
UNIFORM = DecomposeSettings(method="uniform")


def write_own(folder):
    write_dataset(folder / "own.h5", samples.make_header(), samples.make_records())
    return folder / "own.h5"


def write_csv(folder):
    (folder / "trips.csv").write_text(trips.as_csv(trips.make_trips(trips=6)))
    return folder / "trips.csv"


def write_parquet(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(trips.make_trips(trips=6)), folder / "trips.parquet")
    return folder / "trips.parquet"


def write_lerobot(folder):
    pytest.importorskip("pyarrow")
    lerobot_data.write_lerobot(folder / "pick", episodes=6)
    return folder / "pick"


def write_turns(folder):
    lines = [{"turns": [[k, 1.0], [2.0, k]], "score": k} for k in range(6)]
    (folder / "talks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "talks.jsonl"


def write_no_actions(folder):
    states = list(np.random.default_rng(0).normal(size=(6, 5, 2)))
    write_dataset(folder / "own.h5", grd_offline.from_arrays(states, returns=np.arange(6)))
    return folder / "own.h5"


FILES = {
    "own `.h5`": write_own,
    "Minari folder": lambda folder: samples.write_minari_by_hand(folder / "minari"),
    "D4RL": lambda folder: samples.write_flat(folder / "flat.hdf5", samples.flat_arrays()),
    "d3rlpy": lambda folder: samples.write_d3rlpy_by_hand(folder / "d3.h5"),
    "robomimic": lambda folder: samples.write_robomimic_by_hand(folder / "lift.hdf5"),
    "CSV": write_csv,
    "Parquet": write_parquet,
    "LeRobot": write_lerobot,
    "JSON lines of turns": write_turns,
    "no actions": write_no_actions,
}
FRAME, ENVIRONMENT = (
    "data frame, arrays",
    "environment of Gymnasium, continuous or discrete actions",
)


def read_table():
    """The commands that the page says yes to, by the kind of data."""
    text = (ROOT / "docs" / "files.md").read_text()
    start = text.index(f"| data | {' | '.join(COMMANDS)} |")
    table = {}
    for line in re.match(r"(?:\|.*\n)+", text[start:])[0].splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        assert len(cells) == len(COMMANDS)
        assert set(cells) <= {"yes", ""}
        table[name] = [c for c, cell in zip(COMMANDS, cells, strict=True) if cell]
    return table


SUPPORTED = read_table()


def run(*arguments):
    with small_networks():
        done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (arguments, done.output, done.exception)


def test_every_row_is_tested():
    assert set(SUPPORTED) == {*FILES, FRAME, ENVIRONMENT}


@pytest.mark.parametrize("name", FILES)
def test_files(name, tmp_path):
    source, out = FILES[name](tmp_path), tmp_path / "out"
    options = OPTIONS if name in ("CSV", "Parquet") else ()
    commands = {
        "inspect": (source, *options),
        "decompose": (source, *options, "--method", "uniform", "--out", out),
        "relabel": (source, "--model", out),
        **follow(out, tmp_path),
    }
    for command in SUPPORTED[name]:
        run(command, *commands[command])


def follow(out, folder):
    """Commands on the results of a decomposition."""
    relabelled = next(out / n for n in ("relabelled.h5", "relabelled")
                      if (out / n).exists()) if out.exists() else out  # fmt: skip
    training = ("--updates", 2, "--batch", 4, "--seeds", 1, "--workers", 0)
    return {
        "export": (out, "--to", "torch-export"),
        "report": (out,),
        "train-offline": (relabelled, *training, "--out", folder / "run"),
    }


def test_frames(tmp_path):
    episodes = grd_offline.from_dataframe(
        trips.make_trips(trips=6), actions="throttle", step="minute", returns="fuel"
    )
    result = grd_offline.decompose(episodes, tmp_path / "out", UNIFORM)
    grd_offline.relabel(episodes, result.model, tmp_path / "again.h5")
    commands = follow(tmp_path / "out", tmp_path)
    for command in set(SUPPORTED[FRAME]) - {"decompose", "relabel"}:
        run(command, *commands[command])


def test_online_training_has_its_own_tests():
    """The README's command runs in the test of the README."""
    assert SUPPORTED[ENVIRONMENT] == ["train-online"]
    assert "grd-offline train-online --env HalfCheetah" in (ROOT / "README.md").read_text()
