"""What torch or the device lacks makes a benchmark unsupported; what goes wrong does not."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from gpubench_plugin.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def lacking(what: str) -> Iterator[None]:
    """Let torch's refusal of an operation be the reason why `what` is unsupported.

    Raises:
        Unsupported: with the first line of what torch says.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        if went_wrong(error):
            raise
        raise Unsupported(f"{what}: {str(error).partition(chr(10))[0]}") from error


def went_wrong(error: Exception) -> bool:
    """Whether it is no refusal: there was no memory, or a kernel failed."""
    if isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError):
        return True
    return "DefaultCPUAllocator" in str(error)
