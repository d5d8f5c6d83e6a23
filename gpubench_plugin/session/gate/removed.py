"""Detection of removed baseline benchmarks, as opposed to deselected ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


class RemovedBenchmarks:
    """Decides from files and collection of `session` whether a benchmark was removed.

    A benchmark is removed if its file is, whatever was selected, or if a file collected as a whole
    no longer has its function; one case of a function may only have been deselected. Nothing is
    known of a file that was not collected, or of which the command line names single tests.
    """

    def __init__(self, session: pytest.Session):
        config = session.config
        cwd = config.invocation_params.dir
        self._root = config.rootpath
        names = (text.partition("::")[0] for text in config.args if "::" in text)
        self._explicit_files = {(cwd / name).resolve() for name in names}
        # With importlib, pytest leaves a module whose import failed in sys.modules.
        by_importlib = config.getoption("importmode") == "importlib"
        self._modules: dict[Path, object] = {} if by_importlib else dict(_imported())
        for item in session.items:
            module = item.getparent(pytest.Module)
            if module is not None:
                self._modules[item.path.resolve()] = module.obj

    def __call__(self, nodeid: str) -> bool:
        """Whether the benchmark with that id no longer exists."""
        name, _, qualified_name = nodeid.partition("::")
        if not qualified_name:
            return False
        try:
            candidate_path = self._root / name
            file = candidate_path.resolve()
            file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, RuntimeError, ValueError):  # too long, a loop, a null character
            return False
        module = self._modules.get(file) or self._modules.get(candidate_path)
        if file in self._explicit_files or module is None:
            return False
        resolved: object = module
        for part in qualified_name.partition("[")[0].split("::"):
            resolved = getattr(resolved, part, None)
        return resolved is None


def _imported() -> Iterator[tuple[Path, object]]:
    """All modules loaded from files, which include collected ones without tests."""
    for module in list(sys.modules.values()):
        # Not getattr, which would load lazy modules.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and file.endswith(".py"):
            yield Path(file), module
