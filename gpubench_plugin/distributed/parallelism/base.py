"""What a parallelism does to a model, each a method that does nothing here."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import nn

    from gpubench_plugin.distributed.process_group import ProcessGroup


class Parallelism:
    """A way to train one model on the ranks of `group`; a subclass states what it changes."""

    name: ClassVar[str]
    """What the user writes as ``distributed.parallelism``."""

    def __init__(self, group: ProcessGroup):
        self.group = group

    def wrap(self, module: nn.Module) -> nn.Module:
        """The `module`, already on its device, as the ranks run it together."""
        return module

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Where forward and backward passes of a wrapped `module` keep gradients to their rank.

        For all but the last batch of an accumulated step.
        """
        return nullcontext()


BASE = Parallelism
