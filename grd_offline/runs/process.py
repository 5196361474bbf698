"""Changes that a training run makes in its process, and the choice of its device."""

import ctypes
import sys
from contextlib import suppress

import torch

from grd_offline.errors import DataError
from grd_offline.fleet.limits import count_cores, divide_cores


def prepare_process(device: str) -> None:
    """Change settings of this process that make updates faster.

    The public functions call this before they train. A run that is built by hand does not.

    Adam's averages fade into numbers so small that processors are slow with them. Such numbers
    become 0. Memory that is given back is kept for the next update, instead of being fetched anew
    from the system, page by page. On CUDA, products of float32 matrices may use TF32, and torch
    uses one thread of the processor, because threads that wait for the next small copy would take
    the cores from the environments. A thread that writes files gives way to the one that feeds the
    device after a millisecond.
    """
    sys.setswitchinterval(0.001)
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
        torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        library = ctypes.CDLL(None)
        for option, value in ((-1, 2**30), (-3, 2**30), (-2, 2**26)):  # trim, mmap, top pad
            library.mallopt(option, value)


def choose_device(name: str) -> str:
    """The device that `auto`, `cpu` or `cuda` means on this machine."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise DataError("no CUDA device here", field="device")
    return name


def choose_workers(asked: int | None) -> int:
    """The number of workers that was asked for, or as many as there are cores for."""
    return divide_cores(count_cores()) if asked is None else asked
