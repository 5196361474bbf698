"""Hundreds of mutated files, folders and models: no crash, no hang, no memory, nothing outside.

`make test-all` tries twenty times as many.
"""

import os
import subprocess
import sys

import corpus
import numpy as np
import pytest
import reward_models
import run_folders
import samples
from places import HELPERS

from grd_offline.learning.agents.actors import Actor, ActorSpec, count_weights, save_actor

pytestmark = pytest.mark.long

PARTS, TIMES = 2, int(os.environ.get("GRD_OFFLINE_FUZZ", "1"))
CASES = {"files": 400 * TIMES, "folders": 50 * TIMES, "models": 400 * TIMES}
"""A folder takes ten times as long as a file."""


def run_fuzz(kind, folder, part):
    """A part of the cases; gives the share that was refused."""
    size = CASES[kind] // PARTS
    script = HELPERS / "fuzzing.py"
    bounds = [str(size * part), str(size * (part + 1))]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), kind, str(folder), *bounds],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    refused, total, _, _ = done.stdout.split()
    assert int(total) == size
    return int(refused) / size


def write_outside(folder):
    (folder / "outside").mkdir()
    (folder / "templates").mkdir()
    (folder / "outside" / "thesis.tex").write_text("precious")
    return folder / "templates"


def write_sources(folder):
    corpus.own(folder / "own.source")
    corpus.flat(folder / "flat.source")
    samples.write_flat(folder / "zip.source", samples.flat_arrays(), compression="gzip")
    samples.write_d3rlpy_by_hand(folder / "d3.source")
    samples.write_robomimic_by_hand(folder / "robo.source")
    minari = samples.write_minari_by_hand(folder / "minari")
    (minari / "data" / "main_data.hdf5").rename(folder / "minari.source")


def test_a_damaged_fill_value_once_crashed_the_library(tmp_path):
    write_sources(tmp_path)
    script = [sys.executable, str(HELPERS / "fuzzing.py"), "files", str(tmp_path), "3765", "3766"]
    assert subprocess.run(script, capture_output=True).returncode == 0


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_files(part, tmp_path):
    write_sources(tmp_path)
    assert run_fuzz("files", tmp_path, part) > 0.2  # the mutations do reach what is checked


@pytest.mark.parametrize("part", range(PARTS))
def test_tampered_folders(part, tmp_path):
    templates = write_outside(tmp_path)
    for name, write in run_folders.FOLDERS.items():
        write(templates / name)
    assert 0.2 < run_fuzz("folders", tmp_path, part) < 0.96


@pytest.mark.parametrize("part", range(PARTS))
def test_tampered_models(part, tmp_path):
    templates = write_outside(tmp_path)
    for kind in reward_models.FUNCTIONS:
        reward_models.make_model(kind).save(templates / kind)
    spec = ActorSpec("gaussian", (5, 8, 4), (-1.0, -1.0), (1.0, 1.0))
    actor = Actor(spec, np.zeros(count_weights(spec), np.float32))
    save_actor(templates / "policy", actor, {})
    assert 0.2 < run_fuzz("models", tmp_path, part) < 0.96
