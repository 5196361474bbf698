"""Sweep files of somebody else: nothing is imported without asking, and nothing takes long."""

import os
import time

import forked
import pytest

from grd_offline import DataError
from grd_offline.cli import terminal
from grd_offline.lab.sweep.plan import MOST_JOBS, read_plan
from grd_offline.learning.settings import check_trusted

THEIRS = """
[[jobs]]
command = "train-online"
options = { env = "evil:Thing-v0" }
"""


def test_a_module_that_a_sweep_file_names_is_not_imported(tmp_path):
    (tmp_path / "evil.py").write_text("open('pwned', 'w')")
    (tmp_path / "theirs.toml").write_text(THEIRS)
    for more in ((), ("--env", "other:Thing-v0"), ("--dry-run",)):
        done = forked.run("sweep", "theirs.toml", *more, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "imports a Python module: if you trust it, add --env evil:Thing-v0" in done.stderr
        assert {path.name for path in tmp_path.iterdir()} == {"evil.py", "theirs.toml"}


def test_a_trusted_module_is_one_that_a_job_may_import(tmp_path):
    (tmp_path / "theirs.toml").write_text(THEIRS)
    done = forked.run("sweep", "theirs.toml", "--dry-run", "--env", "evil:Thing-v0", cwd=tmp_path)
    assert "train-online --env evil:Thing-v0" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("xml_file", "/etc/robot.xml"), ("xml_file", "..\\robot.xml")]
)
def test_files_that_arguments_of_an_environment_name_have_to_be_trusted(name, value):
    check_trusted("Hopper-v5", {name: value}, given={name: value})
    check_trusted("Hopper-v5", {name: "hopper.xml", "size": 3})
    for given in ({}, {name: "/other.xml"}, None):
        with pytest.raises(DataError, match="if you trust it, add --env-arg"):
            check_trusted("Hopper-v5", {name: value}, given=given)


def test_jobs_are_counted_before_all_blocks_are_expanded(tmp_path):
    values = ", ".join(str(number) for number in range(1, 201))
    block = f"""
[[jobs]]
name = "block%d"
command = "train-online"
options = {{ env = "Hopper" }}
grid = {{ steps = [{values}], warmup = [{values}], batch = [{values}] }}
"""
    path = tmp_path / "many.toml"
    path.write_text("".join(block % number for number in range(100)))
    before = time.process_time()
    with pytest.raises(DataError, match=f"more than {MOST_JOBS:,} jobs"):
        read_plan(path)
    assert time.process_time() - before < 5


def test_nothing_that_is_printed_steers_the_terminal(tmp_path, capsys):
    terminal.echo("one\x1b[31m\ntwo\r\x07")
    assert capsys.readouterr().out == "one\ufffd[31m\ntwo\ufffd\ufffd\n"
    text = 'options = { env = "Hopper", out-of-reach = "\\u001b[31m" }'
    (tmp_path / "a.toml").write_text(f'[[jobs]]\ncommand = "train-online"\n{text}\n')
    done = forked.run("sweep", "a.toml", "--dry-run", cwd=tmp_path)
    assert "\x1b" not in done.stdout + done.stderr
    file = tmp_path / "b\x1b[31m.csv"
    os.close(os.open(file, os.O_CREAT))
    (tmp_path / "c.toml").write_text(
        '[[jobs]]\ncommand = "decompose"\noptions = { file = "b\\u001b[31m.csv" }\n'
    )
    done = forked.run("sweep", "c.toml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "b\ufffd[31m.csv" in done.stdout
