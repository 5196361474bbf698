"""Scripts that trace updates, in processes of their own.

Tracing cannot see through the checks of shapes of the test run.
"""

import os
import subprocess
import sys

import numpy as np
from places import HELPERS


def run_traced(script):
    """Run a script that prints "equal" if all is well."""
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *filter(None, sys.path)])},
    )
    assert result.stdout == "equal\n", result.stderr[-3000:]


def compare(make_learner, settings, updates):
    """Learn the same twice, plainly and traced without making kernels of it."""
    plain, traced = make_learner(settings), make_learner(settings)
    traced.compile("aot_eager")
    for learner in (plain, traced):
        learner.run_updates(updates)
    weights = (plain.export_actors(), traced.export_actors())
    np.testing.assert_allclose(*weights, rtol=1e-4, atol=1e-6)
