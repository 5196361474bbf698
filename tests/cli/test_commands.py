"""The command line as a user meets it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import samples
from forked import run, run_script
from places import ROOT

from grd_offline.io.datasets import open_recording, write_dataset
from grd_offline.io.files import beside

SAMPLE = ROOT / "datasets" / "sample.h5"
COMMANDS = (
    *("collect", "compare", "convert", "decompose", "doctor", "evaluate", "export", "inspect"),
    *("judge", "plot", "relabel", "report", "sweep"),
)


def test_help_lists_every_command():
    done = run("--help")
    assert done.returncode == 0
    listed = re.findall(r"^  (\w+)  ", done.stdout.split("Commands:")[1], re.MULTILINE)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(command):
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"\n    grd-offline {command}" in done.stdout.split("Examples:")[1]


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom grd_offline.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n"
        "    heavy = 'numpy', 'h5py', 'torch', 'gymnasium', 'rich', 'importlib.metadata'\n"
        "    print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_version():
    told = run("--version").stdout
    assert told.startswith("grd-offline, version 0.")
    assert "numpy 2." in told


def test_doctor_names_what_is_installed_and_what_is_missing():
    done = run("doctor")
    assert done.returncode == 0
    for words in ("h5py ", "Optional packages", "processor cores", "Nothing is missing."):
        assert words in done.stdout


@pytest.mark.long
def test_doctor_fails_where_every_install_has_a_package():
    code = (
        "import sys\nsys.modules['h5py'] = None\nfrom grd_offline.cli import main\nmain(['doctor'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "h5py              missing: HDF5 files" in done.stdout
    assert "every install needs h5py: pip install" in done.stderr


def test_inspect_in_words():
    out = run("inspect", SAMPLE).stdout
    for text in ("own", "Hopper-v5", "80 (80 terminated)", "one per episode, at its end"):
        assert text in out


def test_inspect_for_machines():
    with open_recording(SAMPLE) as recording:
        returns = [float(record.rewards.sum()) for record in recording]
    found = json.loads(run("inspect", SAMPLE, "--json").stdout)
    assert found["layout"] == "own"
    assert found["episodes"] == len(returns) == 80
    assert found["delay"] == "end"
    assert found["returns"]["max"] == pytest.approx(max(returns), rel=1e-6)
    assert [entry["name"] for entry in found["actions"]] == [
        "thigh_joint",
        "leg_joint",
        "foot_joint",
    ]
    assert found["extras"] == ["true_rewards"]
    assert found["has_final_observations"] is True


def test_statistics_of_a_dimension_are_right(tmp_path):
    import numpy as np

    records = samples.make_records()
    write_dataset(tmp_path / "data.h5", samples.make_header(), records)
    found = json.loads(run("inspect", tmp_path / "data.h5", "--json").stdout)["observations"][2]
    column = np.concatenate([record.observations[""][:-1, 2] for record in records])
    assert found["name"] == "speed"
    assert found["mean"] == pytest.approx(column.mean(), rel=1e-4)
    assert found["std"] == pytest.approx(column.std(), rel=1e-4)
    assert (found["min"], found["max"]) == (column.min(), column.max())


def test_names_from_a_file_are_shown_as_they_are(tmp_path):
    """No markup of the terminal library, no escape codes, is taken from a file."""
    from dataclasses import replace

    names = ("[red]x[/red]", "<script>", "\x1b[31mred", "ordinary")
    header = replace(samples.make_header(), observation_names=names)
    write_dataset(tmp_path / "data.h5", header, samples.make_records())
    out = run("inspect", tmp_path / "data.h5").stdout
    assert "[red]x[/red]" in out
    assert "<script>" in out
    assert "\x1b" not in out


def test_convert_says_what_it_wrote(tmp_path):
    done = run("convert", SAMPLE, "out", "--to", "minari", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == "wrote out: 80 episodes, 1,418 steps, from own to minari\n"
    assert (tmp_path / "out" / "data" / "main_data.hdf5").exists()


def test_convert_writes_our_layout_by_default(tmp_path):
    done = run("convert", str(SAMPLE), "out.h5", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith("from own to own\n")
    assert (tmp_path / "out.h5").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["inspect"], "Missing argument 'FILE'"),
        (["inspect", "a", "b"], "unexpected extra argument"),
        (["inspect", "--nonsense", "a"], "No such option"),
        (["inspect", "no-such.h5"], "no-such.h5: no such file"),
        (["inspect", "."], "is a folder without a Minari dataset"),
        (
            ["inspect", "minari:nonsense"],
            "minari:nonsense: expected an id such as D4RL/",
        ),
        (["inspect", "sample.h5", "--max-size", "lots"], "'lots' is not a size"),
        (["inspect", "sample.h5", "--max-episode-steps", "0"], "0 is not in the range"),
        (["convert", "sample.h5", "out.h5", "--to", "csv"], "'csv' is not one of"),
        (["convert", "sample.h5", "sample.h5", "--to", "own"], "IN and OUT are the same"),
        (["convert", "sample.h5", "sample.csv"], "a dataset: give it the ending .h5"),
        (["convert", "sample.h5", "no/out.h5", "--to", "own"], "there is no folder "),
        (["convert", "sample.h5", "sample.h5/out.h5", "--to", "own"], "sample.h5 is not a folder"),
        (["decompose", "sample.h5", "--out", ""], "the name is empty"),
        (["train-online", "--env", "Hopper", "--out", ""], "the name is empty"),
        (["report", "no-such", "--out", "no/page.html"], "there is no folder "),
        (["convert", "sample.h5", ".", "--to", "minari"], "holds something else"),
        (["convert", "sample.h5", "/dev/null", "--to", "own"], "is not a regular file"),
    ],
)
def test_mistakes_end_in_one_line(arguments, message, tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
    (tmp_path / "sample.h5").write_bytes(SAMPLE.read_bytes())
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("grd-offline: error: ")
    assert message in done.stderr
    assert os.listdir(tmp_path) == ["sample.h5"]


def test_a_reader_that_leaves_early_is_no_error():
    command = [sys.executable, "-m", "grd_offline", "inspect", str(SAMPLE), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()


def test_an_interrupt_of_convert_leaves_nothing(tmp_path):
    write_dataset(tmp_path / "data.h5", samples.make_header(), samples.make_records(10))
    script = (
        "import glob, os, signal\n"
        "import grd_offline.io.datasets\n"
        "from grd_offline.cli import main\n"
        "write = grd_offline.io.datasets.write_dataset\n"
        "def interrupted(path, header, records, **options):\n"
        "    def stream():\n"
        "        for i, record in enumerate(records):\n"
        "            yield record\n"
        "            if i == 3:\n"
        "                assert glob.glob('.out.h5.*.partial')\n"
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        "    return write(path, header, stream(), **options)\n"
        "grd_offline.io.datasets.write_dataset = interrupted\n"
        "main(['convert', 'data.h5', 'out.h5', '--to', 'own'])\n"
    )
    result = run_script(script, cwd=tmp_path)
    assert result.returncode == 130, result.stderr
    assert result.stderr.strip() == "grd-offline: error: stopped"
    assert os.listdir(tmp_path) == ["data.h5"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("data.h5", "data-grd"),
        ("some/data.h5", "some/data-grd"),
        ("some/folder/", "some/folder-grd"),
        ("minari:some/data-v0", "data-v0-grd"),
    ],
)
def test_results_lie_beside_the_data(file, name):
    assert beside(file, "-grd") == Path(name)


def test_results_of_the_folder_one_is_in_lie_beside_it(tmp_path, monkeypatch):
    (tmp_path / "data/inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "data/inner")
    assert beside(".", "-grd") == tmp_path / "data/inner-grd"
    assert beside("..", "-grd") == tmp_path / "data-grd"
