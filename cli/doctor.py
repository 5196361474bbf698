"""`grd-offline doctor`: what is installed, what is missing for which command, what there is to
compute with."""

from __future__ import annotations

import os
import platform
import shutil
import sys

import click

REQUIRED = {
    "numpy": "everything",
    "scipy": "decompose",
    "h5py": "HDF5 files",
    "click": "the commands",
    "rich": "the commands",
    "scikit-learn": "decompose, judge",
    "safetensors": "reward models",
    "torch": "train-online, train-offline, judge, the fits that are networks",
    "gymnasium": "collect, train-online, train-offline, judge",
    "mujoco": "the MuJoCo tasks",
    "minari": "Minari's datasets",
    "matplotlib": "plot",
    "threadpoolctl": "decompose",
}
"""What every install brings, and what needs it."""
OPTIONAL = {
    "pyarrow": ("Parquet files and LeRobot folders", "tables"),
    "onnx": ("export --to onnx", "export"),
    "onnxruntime": ("export --to onnx", "export"),
    "tensorboard": ("logs for TensorBoard", "tensorboard"),
    "huggingface_hub": ("downloading datasets of Minari", "minari"),
    "ray": ("--runner ray of sweep, collect and relabel", "ray"),
}
"""What it is for, and the extra that brings it."""


@click.command(
    epilog="""
    \b
    Examples:
      grd-offline doctor
    """
)
def doctor() -> None:
    """Say what is installed, what is missing for which command, and what there is to compute with.

    Ends with exit code 1 if a package is missing that every install brings.
    """
    from grd_offline.versions import find_version

    click.echo(f"grd-offline {find_version('grd-offline') or 'not installed'}")
    click.echo(f"Python {platform.python_version()} at {sys.executable}")
    click.echo(f"{platform.system()} {platform.release()}, {platform.machine()}")
    missing = []
    click.echo("\nPackages")
    for name, needed in REQUIRED.items():
        version = find_version(name)
        click.echo(f"  {name:<18}{version or f'missing: {needed}'}")
        missing += [] if version else [name]
    click.echo("\nOptional packages")
    for name, (needed, extra) in OPTIONAL.items():
        told = f'not installed: {needed}; pip install "grd-offline[{extra}]"'
        click.echo(f"  {name:<18}{find_version(name) or told}")
    click.echo("\nTo compute with")
    for line in _list_hardware():
        click.echo(f"  {line}")
    if missing:
        raise click.ClickException(f"missing: {', '.join(missing)} (pip install grd-offline)")
    click.echo("\nNothing is missing.")


def _list_hardware() -> list[str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = [f"{cores} processor cores", _tell_accelerator(), _tell_threads()]
    free = shutil.disk_usage(".").free / 2**30
    return [*lines, f"{free:.0f} GiB free on the disk of this folder"]


def _tell_accelerator() -> str:
    try:
        import torch
    except ImportError:
        return "no accelerator: torch is missing"
    if not torch.cuda.is_available():
        return "no accelerator: networks are trained on the processor"
    names = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    return f"accelerator: {', '.join(names)} (--device cuda)"


def _tell_threads() -> str:
    variables = [
        f"{n}={os.environ[n]}" for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if n in os.environ
    ]
    told = f"set: {', '.join(variables)}" if variables else "no variables are set"
    return f"threads: chosen by each command ({told})"
