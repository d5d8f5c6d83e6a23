"""Whether a model has been called before anything looked at its first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class FirstForward:
    """Notes the first call of `module`, and is gone from it then, or once somebody asks.

    It stands in the place that ``torch.nn.Module.compile`` uses, of which a copy of the module, a
    script of it and what compiles it know nothing. A forward pre-hook is part of all three:
    ``torch.jit.script`` refuses a module that has one (torch 2.13).
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._ran = False
        module._compiled_call_impl = self._call

    def ended(self) -> bool:
        """Whether the module has been called; from now on nothing watches it."""
        if self._module._compiled_call_impl == self._call:  # else it is somebody else's
            self._module._compiled_call_impl = None
        return self._ran

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        self._ran = True
        self.ended()
        return self._module(*args, **kwargs)
