"""Jobs on Ray: the same marks and the same results as on this machine."""

import re
import socket

import pytest
from places import ROOT

from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import read_json
from grd_offline.lab.sweep.folder import FINISHED, Job, Resources
from grd_offline.lab.sweep.parts import plan_collection
from grd_offline.lab.sweep.run import LocalRunner, Machine, run_jobs
from grd_offline.learning.settings import CollectSettings

pytestmark = pytest.mark.long

SAMPLE = str(ROOT / "datasets" / "sample.h5")


def test_without_ray_the_error_says_what_to_do(tmp_path, monkeypatch):
    from grd_offline.lab.sweep.run import RayRunner

    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(DataError, match=r"Ray is not installed: pip install ray"):
        RayRunner(tmp_path, Machine(1, ()), address=None, directory=tmp_path, cpus=1, gpus=None)


def test_an_address_where_nothing_listens_is_refused_at_once(tmp_path, monkeypatch):
    from grd_offline.lab.sweep import run as ray_runner

    monkeypatch.setattr(ray_runner, "_load_ray", lambda: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    unknown = f"nothing answers at 127.0.0.1:{port} (Connection refused): is Ray running there?"
    wrong = "expected auto or HOST:PORT, got "
    for address, words in (
        (f"127.0.0.1:{port}", unknown),
        ("", wrong),
        ("head", wrong),
        ("127.0.0.1:99999", wrong),
    ):
        with pytest.raises(DataError, match=re.escape(words)):
            ray_runner.RayRunner(
                tmp_path, Machine(1, ()), address=address, directory=tmp_path, cpus=1, gpus=None
            )


@pytest.mark.filterwarnings("ignore")  # of Ray itself
def test_results_are_those_of_the_local_runner(tmp_path):
    pytest.importorskip("ray")
    from grd_offline.lab.sweep.run import RayRunner

    jobs = [
        Job(name, ("decompose", SAMPLE, "--method", name, "--seed", "1"))
        for name in ("uniform", "ircr")
    ]
    jobs.append(Job("broken", ("decompose", str(tmp_path / "nothing.h5"))))
    with LocalRunner(tmp_path / "local", [Resources(1)], tmp_path) as local:
        (tmp_path / "local").mkdir()
        first = run_jobs(tmp_path / "local", jobs, local, tries=1)
    (tmp_path / "ray").mkdir()
    with RayRunner(
        tmp_path / "ray", Machine(2, ()), address=None, directory=tmp_path, cpus=1, gpus=None
    ) as runner:
        second = run_jobs(tmp_path / "ray", jobs, runner, tries=1)
    assert [mark.state for mark in first.values()] == [FINISHED, FINISHED, "failed"]
    assert [mark.state for mark in second.values()] == [FINISHED, FINISHED, "failed"]
    assert first["broken"].reason == second["broken"].reason
    for name in ("uniform", "ircr"):
        parts = [tmp_path / kind / "jobs" / name / "result" for kind in ("local", "ray")]
        one, other = (part / "relabelled.h5" for part in parts)
        assert one.read_bytes() == other.read_bytes()
        ours, theirs = (read_json(part / "metrics.json") for part in parts)
        del ours["seconds"], theirs["seconds"]
        assert ours == theirs


@pytest.mark.filterwarnings("ignore")  # of Ray itself
def test_parts_are_those_of_the_local_runner(tmp_path):
    pytest.importorskip("ray")
    from grd_offline.lab.sweep.run import RayRunner

    jobs = plan_collection(CollectSettings("Factored", {"length": 9}, 5, workers=1), 2).jobs
    for kind in ("local", "ray"):
        (tmp_path / kind).mkdir()
    with LocalRunner(tmp_path / "local", [Resources(1)], tmp_path) as local:
        run_jobs(tmp_path / "local", jobs, local, tries=1)
    machine = Machine(2, ())
    with RayRunner(
        tmp_path / "ray", machine, address=None, directory=tmp_path, cpus=1, gpus=0
    ) as runner:
        marks = run_jobs(tmp_path / "ray", jobs, runner, tries=1)
    assert [mark.state for mark in marks.values()] == [FINISHED, FINISHED]
    for name in ("part-00000.h5", "part-00001.h5"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
