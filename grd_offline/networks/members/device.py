"""Updates recorded as CUDA graphs, and numbers on their way from the device."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

WARM_UPS = 3
"""Updates before one is recorded: kernels are chosen and memory is reserved in them."""
MOST_SIZES = 256
"""Number of sizes that one function may be compiled for."""


def record(
    update: Callable[[], None], tensors: Sequence[Tensor], generators: Sequence[Generator] = ()
) -> Callable[[], None]:
    """Record `update` as a graph; calling the result runs it.

    Recording changes nothing: `tensors` are all that an update changes and keeps, `generators` all
    that it draws from, and both are put back. A replay draws on from where a generator then stands.
    """
    kept = [tensor.clone() for tensor in tensors]
    states = [generator.get_state() for generator in generators]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    with compiling_every_size(), warnings.catch_warnings():
        # What torch remarks on its own choices while it compiles, and on gradients that come from a
        # `SideStream`, for which it waits.
        warnings.filterwarnings("ignore", module=r"torch\._inductor|torch\.autograd\.graph")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                update()
        torch.cuda.current_stream().wait_stream(stream)
        for generator in generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            update()
    for tensor, copy in zip(tensors, kept, strict=True):
        tensor.copy_(copy)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
    return graph.replay


@contextmanager
def compiling_every_size() -> Iterator[None]:
    """Compile for each new size of the inputs.

    Torch stops after eight, counted over all runs of a process, and goes on uncompiled.
    """
    import torch._dynamo.config as config

    with config.patch(recompile_limit=MOST_SIZES):
        yield


class SideStream:
    """A stream of the device beside the current one, for work that does not depend on it.

    Small kernels leave part of a device idle, which those of the other stream use. On a CPU all
    work is done in turn.
    """

    def __init__(self, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if is_cuda else None  # type: ignore[no-untyped-call]

    @contextmanager
    def fork(self) -> Iterator[None]:
        """Work within waits for all before it, and is not waited for until `join`.

        The caller keeps the tensors that this work reads until the device has read them.
        """
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Let all further work wait for what was forked."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


def restore(own: dict[str, Any], given: dict[str, Any]) -> None:
    """Overwrite each array in nested dictionaries with the one of the same name."""
    for name, value in own.items():
        if isinstance(value, dict):
            restore(value, given[name])
        elif value is not None:
            value[...] = given[name]


def find_tensors(state: Any) -> Iterator[Tensor]:
    """All tensors in nested dictionaries and lists."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from find_tensors(part)


class Download:
    """A tensor as it is after all that the device has been told to do so far."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tensor.device.type != "cuda":
            self._copy = tensor.detach().clone()
            return
        self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._copy.copy_(tensor.detach(), non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record()

    @property
    def is_ready(self) -> bool:
        """Whether `finish` would not wait."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def finish(self) -> NDArray[np.float32]:
        """Wait for the numbers. The array belongs to the caller."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy.numpy()
