"""Exported reward models give the model's numbers, whatever the kind and the size of the batch."""

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import reward_models
import torch
from click.testing import CliRunner
from places import HELPERS
from reward_models import make_model, make_steps

from grd_offline import DataError
from grd_offline.cli.program import cli
from grd_offline.core.steps import StepBatch
from grd_offline.rewards.export import draw_steps, export_model

kinds = pytest.mark.parametrize("kind", reward_models.FUNCTIONS)
TO_ONNX = [kind for kind in reward_models.FUNCTIONS if kind not in ("effects-next", "network")]
"""Those two differ from other kinds only in their inputs."""
PROGRAMS = ("effects-midpoint", "network-next", "quadratic")
"""Kinds that are also exported as torch programs. Every ONNX file is made from such a program."""


@pytest.mark.long
def test_exported_files_give_the_models_numbers(tmp_path):
    """Files are written in a process without the tests' checks of shapes."""
    code = (
        "import sys, reward_models as made\nfrom grd_offline.rewards.export import export_model\n"
        "for file in sys.argv[2:]:\n"
        "    kind, to = file.split('.')\n"
        "    done = export_model(made.make_model(kind), f'{sys.argv[1]}/{file}', to)\n"
        "    assert done.difference <= 1e-5 * done.scale\n"
    )
    files = [f"{kind}.onnx" for kind in TO_ONNX]
    files += [f"{kind}.torch-export" for kind in PROGRAMS]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, tmp_path, *files],
        cwd=HELPERS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for file in files:
        kind, to = file.split(".")
        names = reward_models.find_needed(kind)
        path = tmp_path / file
        run = load_onnx(path, names) if to == "onnx" else load_program(path)
        for count in (1, 2, 700):
            steps = make_steps(count)
            expected = make_model(kind).predict(*steps)
            rewards = run(dict(zip(names, steps, strict=False)))
            assert rewards.dtype == np.float32
            assert rewards.shape == (count,)
            assert np.abs(rewards - expected).max() <= 2e-5 * max(expected.std(), 1)


def load_onnx(path, names):
    onnx.checker.check_model(proto := onnx.load(path))
    (about,) = (entry.value for entry in proto.metadata_props if entry.key == "grd_offline")
    assert json.loads(about)["observation_names"] == list(reward_models.STATE_NAMES)
    assert json.loads(about)["compact_mask"] == [1, 0, 1, 1, 0]
    session = onnxruntime.InferenceSession(path)
    assert [entry.name for entry in session.get_inputs()] == list(names)
    assert [entry.name for entry in session.get_outputs()] == ["rewards"]
    return lambda inputs: session.run(None, inputs)[0]


def load_program(path):
    module = torch.export.load(path).module()
    return lambda inputs: module(**{n: torch.from_numpy(v) for n, v in inputs.items()}).numpy()


@kinds
def test_checks_are_made_within_the_range_of_the_data(kind):
    model = make_model(kind)
    steps = draw_steps(model, np.random.default_rng(0), 2000)
    assert tuple(steps) == reward_models.find_needed(kind)
    assert [rows.shape[1:] for rows in steps.values()] == [(5,), (2,), (5,), ()][: len(steps)]
    rows = np.concatenate(list(steps.values())[:3], 1)
    if kind.startswith("effects"):
        used = model.function.select_inputs(StepBatch(*steps.values()))
        assert (used >= model.function.low - 1e-6).all()
        assert (used <= model.function.high + 1e-6).all()
    if kind == "effects-midpoint":
        assert 0.4 < steps["terminations"].mean() < 0.6
    if kind == "quadratic":
        np.testing.assert_allclose(rows.mean(0), model.function.mean, atol=0.2)
    if kind == "network-next":
        module = model.function.module
        inputs = np.concatenate([rows[:, :7], rows[:, 7:] - rows[:, :5]], 1)[:, module.columns]
        np.testing.assert_allclose(inputs.mean(0), module.mean, atol=0.2)
        np.testing.assert_allclose(inputs.std(0), module.std, rtol=0.1)


def test_a_file_that_differs_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("grd_offline.rewards.export.TOLERANCE", 0.0)
    (tmp_path / "reward.pt2").write_text("as before")
    with pytest.raises(DataError, match=r"differs from the model by .*: not written"):
        export_model(make_model("effects"), tmp_path / "reward.pt2", "torch-export")
    assert (tmp_path / "reward.pt2").read_text() == "as before"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.long
def test_the_command_says_what_it_wrote(tmp_path):
    (tmp_path / "grd").mkdir()
    make_model("effects-next").save(tmp_path / "grd" / "reward_model")
    done = CliRunner().invoke(cli, ["export", str(tmp_path / "grd"), "--to", "torch-export"])
    assert done.exit_code == 0, done.output
    first, second = done.output.splitlines()
    assert first == (
        f"wrote {tmp_path}/grd.pt2: observations (N, 5), actions (N, 2), "
        "next_observations (N, 5) -> rewards (N,)"
    )
    assert second.startswith("checked on 512 steps: it differs from the model by at most")
    assert (tmp_path / "grd.pt2").stat().st_size > 0
    model = str(tmp_path / "grd/reward_model")
    again = CliRunner().invoke(cli, ["export", model, "--to", "torch-export"])
    assert again.output.startswith(f"wrote {tmp_path}/grd.pt2:")
    # A folder of results is made again only as long as nothing else is in it.
    assert [path.name for path in (tmp_path / "grd").iterdir()] == ["reward_model"]


def test_what_is_missing_for_onnx_is_named(tmp_path):
    make_model("quadratic").save(tmp_path / "model")
    code = (
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if 'onnx' in name else find(name, *rest)\n"
        "from grd_offline.cli import main\nmain(['export', 'model', '--to', 'onnx'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    expected = "onnx: needs onnx and onnxscript: pip install onnx onnxscript"
    assert done.stderr == f"grd-offline: error: {expected}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
