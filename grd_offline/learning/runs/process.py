"""Changes that a training run makes in its process, and the choice of its device."""

import ctypes
import sys
from collections.abc import Sequence
from contextlib import suppress

import torch

from grd_offline.core.errors import DataError
from grd_offline.core.threads import count_cores, divide_cores

SMALL_PRODUCT = 2**22
"""Multiplications in the product of a batch and a layer, up to which one thread is the fastest."""


def prepare_process(device: str, *, batch: int, hidden: Sequence[int]) -> None:
    """Change settings of this process that make updates faster.

    The public functions call this before they train. A run that is built by hand does not.

    Adam's averages fade into numbers so small that processors are slow with them. Such numbers
    become 0. Memory that is given back is kept for the next update, instead of being fetched anew
    from the system, page by page. On CUDA, products of float32 matrices may use TF32, and torch
    uses one thread of the processor, because threads that wait for the next small copy would take
    the cores from the environments. One thread is also the fastest for small networks, such as
    those for discrete actions, and by far the fastest beside a busy process. A thread that writes
    files gives way to the one that feeds the device after a millisecond.
    """
    sys.setswitchinterval(0.001)
    is_cuda = device.startswith("cuda")
    if is_cuda:
        torch.set_float32_matmul_precision("high")
    if is_cuda or batch * max(hidden, default=1) ** 2 <= SMALL_PRODUCT:
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


def choose_workers(asked: int | None, environments: int = 0) -> int:
    """The number of workers that was asked for, or as many as suit the cores."""
    return divide_cores(count_cores(), environments) if asked is None else asked
