"""Updates compiled, recorded as CUDA graphs and replayed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

WARM_UPS = 3
"""Updates before one is recorded: kernels are chosen and memory is reserved in them."""
MOST_SIZES = 256
"""Number of sizes that one function may be compiled for."""


def record(
    update: Callable[[], None],
    tensors: Sequence[Tensor],
    generators: Sequence[torch.Generator] = (),
) -> Callable[[], None]:
    """Record `update` as a graph; calling the result runs it.

    Recording changes nothing: `tensors` are all that an update changes and keeps, `generators` all
    that it draws from, and both are put back. A replay draws on from where a generator then stands.
    """
    kept = [tensor.clone() for tensor in tensors]
    states = [generator.get_state() for generator in generators]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    with compiling_every_size():
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


def find_tensors(state: Any) -> Iterator[Tensor]:
    """All tensors in nested dictionaries and lists."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from find_tensors(part)
