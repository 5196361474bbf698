"""The light install: what works without torch, Gymnasium, MuJoCo, Minari and matplotlib.

Here every package is blocked, in a process of its own, that requirements-core.txt does not bring.
Only polars is there as well, which tables need.
docs/install.md has what was seen in an environment that never had them.
"""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires

import numpy as np
import pytest
from places import ROOT

from grd_offline.core.packages import COMPLETE, CORE, NEEDS

pytestmark = pytest.mark.long

COMMANDS = """
import contextlib, io, json, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
import numpy as np
from grd_offline.cli import main

told = {}


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    told[" ".join(arguments)] = [code, out.getvalue(), err.getvalue()]


rng = np.random.default_rng(0)
rows = ["trip,minute,speed,weather,fuel"]
for trip in range(60):
    speed, rain = rng.normal(size=6).round(3), rng.integers(0, 2, 6)
    fuel = (2 * speed + 3 * rain).sum().round(4)
    rows += [f"{trip},{m},{speed[m]},{'rain' if rain[m] else 'sun'},{fuel}" for m in range(6)]
with open("trips.csv", "w") as file:
    file.write("\\n".join(rows))
import grd_offline
shape = (60, 6)
actions = rng.normal(size=(*shape, 1))
grd_offline.write_dataset("data.h5", grd_offline.from_arrays(
    observations=rng.normal(size=(60, 7, 2)), actions=actions, returns=actions.sum((1, 2))))
columns = ("--columns", "step=minute,return=fuel")
run("inspect", "trips.csv", *columns)
run("inspect", "data.h5")
run("convert", "data.h5", "flat.h5", "--to", "d4rl")
run("convert", "data.h5", "folder", "--to", "minari")
run("decompose", "trips.csv", *columns)
run("decompose", "data.h5")
run("relabel", "flat.h5", "--model", "data-grd")
run("relabel", "trips.csv", "--model", "trips-grd", "--columns", "step=minute", "--out", "r.h5")
run("report", "data-grd")
run("evaluate", "data-grd", "--truth", "observed_rewards")
run("doctor")
run("--version")
model = grd_offline.RewardModel.load("data-grd")
steps = np.ones((3, 2)), np.array([[0.0], [1.0], [2.0]]), np.ones((3, 2)), np.zeros(3)
told["model"] = model.predict(*steps).tolist()
told["model spread"] = model.uncertainty(*steps).tolist()
run("collect", "--env", "Pendulum-v1", "--out", "x.h5")
run("train-online", "--env", "Pendulum-v1")
run("train-offline", "data.h5", "--env", "Pendulum-v1")
run("judge", "data.h5", "--env", "Pendulum-v1")
run("plot", "data-grd")
run("export", "data-grd", "--to", "torch-export")
run("decompose", "data.h5", "--fit", "pair-net", "--out", "x")
run("decompose", "data.h5", "--method", "rrd", "--out", "x")
run("inspect", "minari:D4RL/door/human-v2")
run("report", "data-grd", "--video", "--env", "Pendulum-v1")
run("sweep", sys.argv[2], "--out", "sweep")
try:
    grd_offline.train_online
except ImportError as error:
    told["train_online"] = str(error)
print(json.dumps(told))
"""
LACKING = {
    "collect --env Pendulum-v1 --out x.h5": "collect needs gymnasium",
    "train-online --env Pendulum-v1": "train-online needs torch and gymnasium",
    "train-offline data.h5 --env Pendulum-v1": "train-offline needs torch and gymnasium",
    "judge data.h5 --env Pendulum-v1": "judge needs torch and gymnasium",
    "plot data-grd": "plot needs matplotlib",
    "export data-grd --to torch-export": "export needs torch",
    "decompose data.h5 --fit pair-net --out x": "decompose with these options needs torch",
    "decompose data.h5 --method rrd --out x": "decompose with these options needs torch",
    "inspect minari:D4RL/door/human-v2": "inspect with these options needs minari",
    "report data-grd --video --env Pendulum-v1": "report with these options needs gymnasium",
}


def find_core():
    """The packages of requirements-core.txt, and those that come with them."""
    lines = (ROOT / "requirements-core.txt").read_text().splitlines()
    waiting = [re.split(r"[<>=]", line)[0] for line in lines if line and not line.startswith("#")]
    found = set()
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name not in found:
            found.add(name)
            texts = [text for text in requires(name) or () if "extra ==" not in text]
            waiting += [re.split(r"[^\w.-]", text)[0] for text in texts]
    return found


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """What was told by each command in a process that has the core alone, and where it ran."""
    folder = tmp_path_factory.mktemp("light")
    kept = {*find_core(), "grd-offline", "polars", "polars-runtime-32"}
    blocked = [
        module
        for module, homes in packages_distributions().items()
        if module[0] != "_" and kept.isdisjoint(home.lower().replace("_", "-") for home in homes)
    ]
    assert set(COMPLETE) - {"polars"} <= set(blocked)
    sweep = ROOT / "experiments" / "rewards.toml"
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, ",".join(blocked), sweep],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


def test_everything_that_needs_no_network_works(light):
    told, folder = light
    ended = {name: found for name, found in told.items() if name.split()[0] in NEEDS}
    working = {name for name in ended if name not in LACKING and not name.startswith("sweep")}
    assert len(working) == 11
    for command in working:
        assert ended[command][0] == 0, (command, ended[command])
    for name in ("trips-grd/relabelled.csv", "data-grd/report.html", "folder/data/main_data.hdf5"):
        assert (folder / name).is_file()
    effects = json.loads((folder / "trips-grd" / "effects.json").read_text())
    assert len(effects["effects"]) >= 2
    assert told["model"][1] - told["model"][0] == pytest.approx(1, abs=0.1)
    assert all(spread > 0 for spread in told["model spread"])


def test_other_commands_say_in_one_line_what_is_missing(light):
    told, _ = light
    for command, words in LACKING.items():
        code, _, err = told[command]
        line = err.strip().splitlines()[-1]
        assert code == 2, command
        packages = words.split(" needs ")[1].replace(" and ", " ")
        said = f"{words}, not installed here: pip install {packages}"
        assert line == f"grd-offline: error: {said}"
        assert "Traceback" not in err
    (sweep,) = (ended for command, ended in told.items() if command.startswith("sweep"))
    assert sweep[0] == 2
    assert len(sweep[2].splitlines()) == 1
    assert "not installed here: pip install " in sweep[2]
    assert told["train_online"] in {  # whichever is imported first
        f"grd_offline.train_online needs {name}, not installed here: pip install {name}"
        for name in ("gymnasium", "torch")
    }


def test_tables_say_that_they_need_polars(tmp_path):
    (tmp_path / "trips.csv").write_text("trip,x,fuel\n1,2,3\n")
    code = "import sys; sys.modules['polars'] = None; from grd_offline.cli import main; main()"
    command = [sys.executable, "-c", code, "inspect", "trips.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "grd-offline: error: inspect with these options needs polars, not installed here: "
        "pip install polars\n"
    )


def test_other_data_need_no_polars():
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "import grd_offline.pipeline.decompose, grd_offline.cli.decompose"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_doctor_says_what_a_light_install_lacks(light):
    out = light[0]["doctor"][1]
    for line in (
        "  torch             missing: training policies and networks",
        "  decompose         ready",
        "  train-online      needs torch, gymnasium",
        "  no accelerator is used: torch is not installed",
        "A light install: 7 commands need more packages.",
    ):
        assert line in out.splitlines() or line in out


def test_requirements_core_are_among_the_dependencies():
    lines = (ROOT / "requirements-core.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert listed <= set(project["dependencies"])
    assert {re.split(r"[<>=]", line)[0] for line in listed} == set(CORE)


def test_every_command_and_dependency_is_listed():
    from grd_offline.cli.program import cli

    assert set(NEEDS) == set(cli.commands)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=]", text)[0] for text in project["dependencies"]}
    assert names == {*CORE, *COMPLETE}


def test_no_network_competes_without_torch(monkeypatch):
    """Of returns that are explained in part, a complete install would train networks."""
    from grd_offline import DecomposeSettings, from_arrays
    from grd_offline.methods import choose

    rng = np.random.default_rng(0)
    actions = rng.normal(size=(120, 3, 1))
    episodes = from_arrays(
        observations=rng.normal(size=(120, 4, 1)),
        actions=actions,
        returns=actions.sum((1, 2)) + rng.normal(size=120),
    )
    monkeypatch.setattr(choose, "FEWEST_TO_CHALLENGE", 50)
    monkeypatch.setattr(choose, "is_installed", lambda name: name != "torch")
    settings = DecomposeSettings()
    chosen = choose.choose(episodes, settings, 1.0, rng, lambda stage, share: None)
    assert chosen.reason.endswith("no network competed, because torch is not installed")
    tried = {one.fit for one in chosen.candidates}
    assert tried <= {"closed-form", *choose.SIMPLE, choose.AVERAGE}


def test_import_is_quick():
    """In time of the processor, because other tests run beside this one."""
    code = "from time import process_time as now; t = now(); import grd_offline; print(now() - t)"
    tries = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    assert min(float(done.stdout) for done in tries) < 0.2
