"""numpy uses one thread while it works for this package."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg  # noqa: F401
import torch
from threadpoolctl import ThreadpoolController, threadpool_info

from grd_offline.core import threads


def count(own):
    """Threads of numpy's matrix library, or of torch's."""
    return [
        entry["num_threads"]
        for entry in threadpool_info()
        if entry["user_api"] == "blas" and ("/torch/lib/" in entry["filepath"]) != own
    ]


def test_one_thread_inside_and_as_before_outside():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before, theirs = count(True), count(False)
        assert before
        with threads.one_numpy_thread():
            assert set(count(True)) == {1}
            assert count(False) == theirs
        assert count(True) == before
    assert torch.zeros(1).sum() == 0
    assert np.zeros(1).sum() == 0


def test_one_torch_thread_inside_and_as_before_outside():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with threads.one_torch_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("path", "is_limited"),
    [
        ("/opt/torch/.venv/lib/site-packages/numpy.libs/libopenblas.so", True),
        ("/venv/lib/site-packages/torch/lib/libopenblas.so.0", False),
        ("/home/torch/lib/numpy.libs/libscipy_openblas64.so", True),
    ],
)
def test_which_library_is_torchs(path, is_limited):
    assert threads.is_numpys(path) is is_limited


def test_a_decomposition_uses_one_thread(tmp_path):
    """With the plain command and no environment variable."""
    script = (
        "import grd_offline.methods.decompose as d\n"
        "from grd_offline import DataError, decompose\n"
        "from threadpoolctl import threadpool_info\n"
        "seen = []\n"
        "def fit(*arguments):\n"
        "    seen.extend(e['num_threads'] for e in threadpool_info()\n"
        "                if e['user_api'] == 'blas' and '/torch/lib/' not in e['filepath'])\n"
        "    raise DataError('seen')\n"
        "d._fit = fit\n"
        "try:\n"
        "    decompose('data.h5', 'out')\n"
        "except DataError:\n"
        "    print(set(seen))\n"
    )
    import corpus

    corpus.own(tmp_path / "data.h5")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, env={}
    )
    assert done.stdout.strip() == "{1}", done.stderr
