"""The house: each room imports only rooms above it, and the wheel holds all of them."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from graphlib import TopologicalSorter

import pytest
from places import ROOT

from grd_offline.report.page import SCRIPTS

ROOMS = (
    "core",
    "io",
    "worlds",
    "networks",
    "comparison",
    "additive",
    "rewards",
    "methods",
    "learning",
    "lab",
    "report",
    "pipeline",
    "interop",
    "cli",
)
"""In the order in which they may import one another: each only those before it."""
HEAVY = ("torch", "gymnasium", "mujoco", "minari", "sklearn", "click", "rich", "matplotlib")


def imports_of(file):
    """The modules that a file imports, whether at its top or inside a function."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "grd_offline" and parts[1] in ROOMS else None


def files():
    for file in sorted((ROOT / "grd_offline").rglob("*.py")):
        parts = file.relative_to(ROOT / "grd_offline").with_suffix("").parts
        if parts not in (("__init__",), ("__main__",)):
            yield parts[0], file
    yield from (("cli", file) for file in sorted((ROOT / "cli").rglob("*.py")))


def test_one_class_name_stands_for_one_thing():
    classes = Counter(
        node.name
        for _, file in files()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_every_room_is_listed():
    assert {room for room, _ in files()} == set(ROOMS)


def test_imports_point_upwards():
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for room, file in files()
        for module in imports_of(file)
        if (other := room_of(module)) and ROOMS.index(other) > ROOMS.index(room)
    ]
    assert wrong == []


def test_no_import_goes_in_a_circle():
    """Among modules, for what is imported at the top of a file."""
    graph = {}
    for _, file in files():
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        graph[module] = {
            name
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.ImportFrom) and node.level == 0
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        }
    known = set(graph)
    TopologicalSorter({one: others & known for one, others in graph.items()}).prepare()


def test_the_map_names_the_rooms_in_their_order_and_files_that_are_there():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| `([\w/.]+)` \|$", text, re.MULTILINE)
    assert tuple(room for room, _ in rows) == ROOMS
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|md))`", text)
    missing = [
        n for n in named if not any((ROOT / top / n).exists() for top in (".", "grd_offline"))
    ]
    assert missing == []


def test_types_of_arrays_are_defined_once():
    definition = re.compile(r"^(\w*Array|Amounts|Matrix) = NDArray", re.MULTILINE)
    found = [
        str(file.relative_to(ROOT)) for _, file in files() if definition.search(file.read_text())
    ]
    assert found == ["grd_offline/core/typing.py"]


def test_import_is_light():
    code = f"import sys, grd_offline; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "code",
    [
        "from grd_offline.learning.fleet.fleet import Fleet; "
        "Fleet('Factored', [0], workers=0).close()",
        "from grd_offline.learning.collecting.dataset import CollectSettings, run_episodes; "
        "list(run_episodes(CollectSettings('Factored', episodes=1))[1])",
    ],
    ids=["fleet", "collecting"],
)
def test_stepping_environments_does_not_import_torch(code):
    script = f"{code}; import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_one_function_changes_the_process():
    """`prepare_process` is called by whoever starts a run, and by no constructor. What
    `one_torch_thread` changes, it changes back."""
    calls = ("set_float32_matmul_precision", "set_flush_denormal", "mallopt", "set_num_threads")
    found = {
        str(file.relative_to(ROOT))
        for _, file in files()
        if any(call in file.read_text() for call in calls)
    }
    assert found == {"grd_offline/learning/runs/process.py", "grd_offline/core/threads.py"}


def test_every_public_name_is_there():
    import grd_offline

    assert all(getattr(grd_offline, name) is not None for name in grd_offline.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = grd_offline.nonsense


def test_versions_agree():
    import grd_offline

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == grd_offline.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in citation
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_there_is_no_python_among_the_datasets():
    assert list((ROOT / "datasets").rglob("*.py")) == []
    assert (ROOT / "datasets" / "sample.h5").stat().st_size <= 300_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", folder, ROOT),
        ],
        check=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.long
def test_the_wheel_holds_every_room_and_nothing_else(wheel):
    assert wheel.stat().st_size < 3_000_000
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"grd_offline"}
    expected = {
        str(file.relative_to(ROOT)) if room != "cli" else f"grd_offline/{file.relative_to(ROOT)}"
        for room, file in files()
    }
    assert expected <= set(names)
    assert "grd_offline/py.typed" in names
    page = ("templates/page.html", "page.css", *SCRIPTS, "vendor/plotly-cartesian.min.js")
    assert {f"grd_offline/report/{name}" for name in (*page, "vendor/plotly-LICENSE.txt")} <= set(
        names
    )


@pytest.mark.long
def test_the_wheel_runs_from_outside_the_repository(wheel, tmp_path):
    """In an environment of its own that borrows only the dependencies."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (borrowed,) = (path for path in sys.path if path.endswith("site-packages"))
    (site / "borrowed.pth").write_text(borrowed)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--ignore-installed", "--prefix", tmp_path / "env", wheel),
        ],
        check=True,
        env={**os.environ, "PIP_NO_WARN_SCRIPT_LOCATION": "1"},
    )
    python = tmp_path / "env" / "bin" / "python"
    where = subprocess.run(
        [python, "-c", "import grd_offline.cli; print(grd_offline.cli.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in where.stdout
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "grd-offline", "inspect", ROOT / "datasets" / "sample.h5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Hopper-v5" in done.stdout
