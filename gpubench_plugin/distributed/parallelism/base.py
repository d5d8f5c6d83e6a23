"""What a parallelism does to a model, each a method that does nothing here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.distributed.parallelism._per_rank import drawn_or_normalised_per_rank

if TYPE_CHECKING:
    from torch import nn

    from gpubench_plugin.configuration.schema import DistributedSection
    from gpubench_plugin.distributed.process_group import ProcessGroup

Compile = Callable[["nn.Module"], "nn.Module"]


class Parallelism:
    """A way to train one model on the ranks of `group`; a subclass states what it changes.

    The life of one: ask :meth:`unsupported`, compile the module by :meth:`compiled` where that is
    wanted, :meth:`wrap` it before the optimizer sees its parameters, and run all but the last
    batch of an accumulated step within :meth:`no_sync`.
    """

    name: ClassVar[str]
    """What the user writes as ``distributed.parallelism``."""

    def __init__(self, group: ProcessGroup, section: DistributedSection):
        self.group = group
        self.section = section

    def unsupported(self, compute_dtype: str) -> str | None:
        """Why it cannot run as configured with a precision of `compute_dtype`; None: it can.

        `compute_dtype` is what matrix products compute in: fp32, tf32, fp16 or bf16.
        """
        return None

    def compiled(self, module: nn.Module, compile: Compile) -> nn.Module:
        """The `module` compiled, before it is wrapped: here as one whole."""
        return compile(module)

    def wrap(self, module: nn.Module) -> nn.Module:
        """The `module`, already on its device, as the ranks run it together.

        Raises:
            Unsupported: the parallelism cannot take this module, and why.
        """
        return module

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Where forward and backward passes of a wrapped `module` keep gradients to their rank.

        For all but the last batch of an accumulated step.
        """
        return nullcontext()

    def differs_from_one_process(self, module: nn.Module) -> str | None:
        """Why training `module` is not what one process does with the global batch; None: it is.

        Apart from rounding, the averaged gradients are then those of one process.
        """
        return drawn_or_normalised_per_rank(module)


BASE = Parallelism
