"""Which benchmarks of the baseline no longer exist, as opposed to: were not selected today."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


class Removal:
    """What the files of `session`, and their collection, say of benchmarks that it did not yield.

    A benchmark is gone where its file is, whatever was selected. In a file that was collected as a
    whole, with or without a test left to run, it is gone where its function is; a case of a
    function that is there may only have been left out by a flag. Of a file that is there and was
    not collected nothing is known, nor of one of which an argument of the command line names a
    single test.
    """

    def __init__(self, session: pytest.Session):
        config = session.config
        here = config.invocation_params.dir
        self._root = config.rootpath
        named = (text.partition("::")[0] for text in config.args if "::" in text)
        self._named = {(here / name).resolve() for name in named}
        # Then a module that failed half way stays among all modules.
        by_importlib = config.getoption("importmode") == "importlib"
        self._modules: dict[Path, object] = {} if by_importlib else dict(_imported())
        for item in session.items:
            module = item.getparent(pytest.Module)
            if module is not None:
                self._modules[item.path.resolve()] = module.obj

    def __call__(self, nodeid: str) -> bool:
        """Whether the benchmark with that id is gone."""
        name, _, rest = nodeid.partition("::")
        if not rest:
            return False
        try:
            listed = self._root / name
            file = listed.resolve()
            file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, RuntimeError, ValueError):  # too long, a loop, a null character
            return False
        module = self._modules.get(file) or self._modules.get(listed)
        if file in self._named or module is None:
            return False
        found: object = module
        for part in rest.partition("[")[0].split("::"):
            found = getattr(found, part, None)
        return found is None


def _imported() -> Iterator[tuple[Path, object]]:
    """All modules of files: one that pytest has collected is among them, its tests or none."""
    for module in list(sys.modules.values()):
        # Not by getattr: modules that load themselves when they are asked would do so.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and file.endswith(".py"):
            yield Path(file), module
