"""Numbers on their way from the device, which is not waited for until they are needed."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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
