"""`grd-offline doctor`: what is installed, what is missing for which command, what there is to
compute with."""

from __future__ import annotations

import os
import platform
import shutil
import sys

import click

from grd_offline.core import packages
from grd_offline.core.threads import count_cores

from .options import command


@command()
def doctor() -> None:
    """Say what is installed, what is missing for which command, and what there is to compute with.

    Ends with exit code 2 if a package is missing that every install needs. A light install, without
    torch and Gymnasium, is fine.

    \b
    Examples:
      grd-offline doctor
    """
    click.echo(f"grd-offline {packages.find_version('grd-offline') or 'not installed'}")
    click.echo(f"Python {platform.python_version()} at {sys.executable}")
    click.echo(f"{platform.system()} {platform.release()}, {platform.machine()}")
    _show_packages()
    lacking = _show_commands()
    click.echo("\n  ".join(["\nTo compute with", *_list_hardware()]))
    if missing := [name for name in packages.CORE if not packages.is_installed(name)]:
        raise click.ClickException(
            f"every install needs {', '.join(missing)}: pip install -r requirements-core.txt"
        )
    if absent := [name for name in packages.COMPLETE if not packages.is_installed(name)]:
        click.echo(f"\nA light install: {lacking} commands need more packages.")
        click.echo(f"All of them: {packages.install_line(absent)}")
    else:
        click.echo("\nNothing is missing.")


def _show_packages() -> None:
    for title, found, otherwise in (
        ("Packages", packages.CORE | packages.COMPLETE, "missing"),
        ("Optional packages", packages.OPTIONAL, "not installed"),
    ):
        click.echo(f"\n{title}")
        for name, use in found.items():
            version = packages.find_version(name) or "installed"
            is_there = packages.is_installed(name)
            click.echo(f"  {name:<17} {version if is_there else f'{otherwise}: {use}'}")


def _show_commands() -> int:
    """Say of each command whether it can run; gives the number of those that cannot."""
    click.echo("\nCommands")
    lacking = 0
    for name in packages.NEEDS:
        missing = packages.find_missing(name)
        lacking += bool(missing)
        state = f"needs {', '.join(missing)}" if missing else "ready"
        click.echo(f"  {name:<17} {state}")
        for part, package in packages.PARTS.get(name, ()):
            if not packages.is_installed(package):
                click.echo(f"{'':20}{part}: needs {package}")
    return lacking


def _list_hardware() -> list[str]:
    free = shutil.disk_usage(".").free / 2**30
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    given = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    accelerator = "no accelerator is used: torch is not installed"
    threads = "threads: the closed form uses 1"
    if packages.is_installed("torch"):
        import torch

        accelerator = "no accelerator: networks are trained on the processor"
        threads += f", torch uses {torch.get_num_threads()}"
        if torch.cuda.is_available():
            found = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
            version = torch.version.cuda
            accelerator = f"accelerator: {', '.join(found)} (--device cuda), CUDA {version}"
        elif torch.version.cuda is None and shutil.which("nvidia-smi"):
            reason = "this torch is built for processors only"
            accelerator = f"accelerator: NVIDIA's, not used, because {reason}"
    return [
        f"{count_cores()} processor cores",
        accelerator,
        f"{free:.0f} GiB free on the disk of this folder",
        threads,
        f"environment variables for threads: {given or 'none'}",
    ]
