"""A reward model as one file for other programs: ONNX, or PyTorch's own exported program.

Inputs are `observations` (N, state), `actions` (N, action) and, where the reward depends on them,
`next_observations` (N, state) and `terminations` (N,), the last of them bool; the output is
`rewards` (N,). All others are float32, N is free. Before a file takes its place it is loaded again
and must give the model's own numbers.
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.packages import install_line
from grd_offline.io.files.storage import replace_file
from grd_offline.rewards.model import RewardModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2"}
"""The formats, and how the names of their files end."""
TOLERANCE = 1e-5
"""Largest difference from the model, in standard deviations of its rewards."""
_STEPS = 512
_OPSET = 18

Inputs = dict[str, NDArray[Any]]


class Export(NamedTuple):
    """The file that was written, and how well it agrees with the model."""

    path: Path
    inputs: dict[str, int]
    """Number of columns of each input, by name; 0 of terminations, which are (N,)."""
    difference: float | None
    """Largest difference in reward on the steps it was tried on; None if it was not tried."""
    scale: float
    """Standard deviation of the reward on those steps; its size, where it is constant."""
    steps: int
    """Number of those steps."""


def export_model(model: RewardModel, path: str | os.PathLike[str], to: str) -> Export:
    """Write a model in the format `to`, one of `FORMATS`; the file is checked first.

    Nothing is written where the file does not give the model's rewards.
    """
    if to not in FORMATS:
        raise ValueError(f"to: expected one of {', '.join(FORMATS)}, got {to!r}")
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if to == "onnx" and missing:
        raise DataError(f"needs {' and '.join(missing)}: {install_line(missing)}", field="onnx")
    inputs = draw_steps(model, np.random.default_rng(0), _STEPS)
    expected = model.predict(**inputs)
    spread, size = float(expected.std()), float(np.abs(expected).max())
    scale = spread if spread > TOLERANCE * size else size or 1.0
    make, run = (_make_onnx, _run_onnx) if to == "onnx" else (_make_program, _run_program)
    with _quiet():
        data = make(model, inputs)
    differences: list[float] = []

    def verify(partial: Path) -> None:
        with _quiet():
            predict = run(partial)
        if predict is None:
            return
        # All steps, and one alone: the batch must not be fixed at the size it was traced with.
        for count in (_STEPS, 1):
            found = predict({name: rows[:count] for name, rows in inputs.items()})
            if found.shape != (count,):
                raise DataError(f"gives shape {found.shape}, expected ({count},)", file=path)
            differences.append(float(np.abs(found - expected[:count]).max()))
        if not max(differences) <= TOLERANCE * scale:
            usual = f"where rewards are of the order of {scale:.3g}: not written"
            reason = f"differs from the model by {max(differences):.3g} {usual}"
            raise DataError(reason, file=path)

    with replace_file(path, verify=verify) as output:
        output.write(data)
    columns = {name: rows.shape[1] if rows.ndim > 1 else 0 for name, rows in inputs.items()}
    largest = max(differences) if differences else None
    return Export(Path(path), columns, largest, scale, _STEPS)


def draw_steps(model: RewardModel, rng: np.random.Generator, count: int) -> Inputs:
    """Steps within the range of the data that the model was learned from, by input name."""
    states, actions = len(model.observation_names), len(model.action_names)
    rows = model.function.draw_inputs(rng, count).astype(np.float32)
    first, second, third, last = np.split(rows, np.cumsum([states, actions, states]), 1)
    steps: Inputs = {"observations": first, "actions": second}
    if model.needs_next_observations:
        steps["next_observations"] = third
    if model.needs_termination:
        steps["terminations"] = last[:, 0] > 0
    return steps


def _trace(model: RewardModel, inputs: Inputs) -> torch.export.ExportedProgram:
    import torch

    batch = torch.export.Dim("batch")
    tensors = {name: torch.from_numpy(rows) for name, rows in inputs.items()}
    shapes = {name: {0: batch} for name in tensors}
    return torch.export.export(model.torch().eval(), (), kwargs=tensors, dynamic_shapes=shapes)


def _make_program(model: RewardModel, inputs: Inputs) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.export.save(_trace(model, inputs), buffer, extra_files={"about.json": _about(model)})
    return buffer.getvalue()


def _make_onnx(model: RewardModel, inputs: Inputs) -> bytes:
    import torch

    program = torch.onnx.export(
        _trace(model, inputs),
        (),
        kwargs={name: torch.from_numpy(rows) for name, rows in inputs.items()},
        input_names=list(inputs),
        output_names=["rewards"],
        opset_version=_OPSET,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    proto.metadata_props.add(key="grd_offline", value=_about(model))
    return bytes(proto.SerializeToString())


def _run_program(path: Path) -> Callable[[Inputs], NDArray[Any]]:
    """Load a file that was just written here: a file from elsewhere could run code."""
    import torch

    module = torch.export.load(io.BytesIO(path.read_bytes())).module()

    def predict(inputs: Inputs) -> NDArray[Any]:
        rewards = module(**{name: torch.from_numpy(rows) for name, rows in inputs.items()})
        return np.asarray(rewards.detach().numpy())

    return predict


def _run_onnx(path: Path) -> Callable[[Inputs], NDArray[Any]] | None:
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])

    def predict(inputs: Inputs) -> NDArray[Any]:
        return np.asarray(session.run(["rewards"], inputs)[0])

    return predict


def _about(model: RewardModel) -> str:
    about = {
        "grd_offline": version("grd-offline"),
        "observation_names": list(model.observation_names),
        "action_names": list(model.action_names),
        "compact_mask": model.compact_mask.tolist(),
        "about": dict(model.about or {}),
    }
    return json.dumps(about)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings and logs of the exporters, about which a user can do nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
