"""The examples in docstrings run, in a folder that holds the sample."""

import doctest
import shutil

from places import ROOT

from grd_offline.methods import contract, registry, relabelling
from grd_offline.pipeline import decompose as pipeline


def test_examples_in_docstrings_run(tmp_path, monkeypatch):
    (tmp_path / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "sample.h5", tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)
    for module in (contract, registry, pipeline, relabelling):
        found = doctest.testmod(module)
        assert found.attempted > 0, module.__name__
        assert found.failed == 0, module.__name__


def test_decompose_is_a_function_whatever_was_imported_before():
    import grd_offline

    assert grd_offline.decompose is pipeline.decompose
    assert grd_offline.relabel is relabelling.relabel
