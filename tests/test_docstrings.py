"""Public names say what they take and give, in numpydoc's form, and their examples run."""

import doctest
import inspect
import re
import shutil

import pytest
from places import ROOT

import grd_offline

NAMES = [name for name in sorted(grd_offline.__all__) if callable(getattr(grd_offline, name))]
FUNCTIONS = [name for name in NAMES if not inspect.isclass(getattr(grd_offline, name))]


def list_sections(name):
    """The sections of a docstring: the names of what stands in each."""
    text = inspect.getdoc(getattr(grd_offline, name)) or ""
    parts = re.split(r"(?m)^(\w+)\n-+\n", text)
    return {
        title: re.findall(r"(?m)^([*\w][*\w, ]*)(?: : .*)?$", body)
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    assert "Examples" in list_sections(name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_tells_all_its_parameters_and_what_it_returns(name):
    sections = list_sections(name)
    told = [one.strip("* ") for line in sections["Parameters"] for one in line.split(",")]
    found = inspect.signature(getattr(grd_offline, name)).parameters
    assert told == list(found)
    assert "Returns" in sections


@pytest.mark.long
def test_examples_run(tmp_path, monkeypatch):
    """In a folder that holds the sample, as a copy of the repository does."""
    (tmp_path / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "sample.h5", tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)
    modules = {inspect.getmodule(inspect.unwrap(getattr(grd_offline, name))) for name in NAMES}
    for module in sorted(modules, key=lambda module: module.__name__):
        assert doctest.testmod(module).failed == 0, module.__name__


def test_decompose_is_a_function_whatever_was_imported_before():
    from grd_offline.methods import relabelling
    from grd_offline.pipeline import decompose

    assert grd_offline.decompose is decompose.decompose
    assert grd_offline.relabel is relabelling.relabel
