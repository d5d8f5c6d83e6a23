"""Whether a test uses torch: by what its modules have imported, and by what it imports itself.

What other tests of the session have imported does not count, so that a benchmark is measured alike
alone and in company.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

_TORCH: Final = "torch"
_LEAVES: Final = sys.stdlib_module_names | {
    *("gpubench_plugin", "numpy", "pytest", "_pytest", "pluggy", "pytest_benchmark")
}
"""Modules by which no test comes to torch, or only by other means."""


def imported_torch() -> Any | None:
    """Torch if it is imported; what only bears its name, as a project's own module, is not it."""
    torch = sys.modules.get(_TORCH)
    return torch if isinstance(getattr(torch, "Tensor", None), type) else None


def reaches_torch(namespaces: Iterable[Mapping[str, object]]) -> bool:
    """Whether torch is imported in these `namespaces` of modules, or in modules named there."""
    if imported_torch() is None:
        return False
    stack, modules = list(namespaces), set[str]()
    while stack:
        for name in {_module_of(value) for value in list(stack.pop().values())} - modules:
            modules.add(name)
            top = name.partition(".")[0]
            if top == _TORCH:
                return True
            module = sys.modules.get(name)
            if module is not None and top not in _LEAVES:
                stack.append(vars(module))
    return False


def _module_of(value: object) -> str:
    """The module that a global name stands for, or where its function, class or type comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    is_defined = isinstance(value, FunctionType | BuiltinFunctionType | type)
    return str(value.__module__ if is_defined else type(value).__module__)


class ImportWatch:
    """Watches which modules are imported, whether or not an earlier test has loaded them."""

    def __init__(self) -> None:
        self._import: Any = None
        self._imported: dict[int, ModuleType] = {}

    def begin(self) -> None:
        """Watch the import statements of this process, but for gpubench's own."""
        self._import, builtins.__import__ = builtins.__import__, self._watched

    def end(self) -> None:
        """Stop, unless somebody else watches, too; harmless if not begun."""
        if builtins.__import__ == self._watched:
            builtins.__import__ = self._import

    def have_torch(self) -> bool:
        """Whether torch is among what was imported, or is reached by it."""
        return reaches_torch([{str(n): module for n, module in self._imported.items()}])

    def _watched(self, name: str, globals: Any = None, *args: Any, **kwargs: Any) -> ModuleType:
        __tracebackhide__ = True
        module: ModuleType = self._import(name, globals, *args, **kwargs)
        importer = str((globals or {}).get("__name__", ""))
        if not importer.startswith("gpubench_plugin."):
            self._imported[id(module)] = module
        return module
