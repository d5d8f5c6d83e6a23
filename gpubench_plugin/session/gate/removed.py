"""Detection of removed baseline benchmarks, as opposed to deselected ones."""

from __future__ import annotations

from pathlib import Path

import pytest


class RemovedBenchmarks:
    """Decides from files and collection of `session` whether a benchmark was removed.

    A benchmark is removed if its file is, whatever was selected, or if a file collected as a whole
    no longer has its function; one case of a function may only have been deselected. Nothing is
    known of a file without a selected test, or of which the command line names single tests.
    """

    def __init__(self, session: pytest.Session):
        config = session.config
        cwd = config.invocation_params.dir
        self._root = config.rootpath
        names = (text.partition("::")[0] for text in config.args if "::" in text)
        self._explicit_files = {(cwd / name).resolve() for name in names}
        self._modules: dict[Path, object] = {}
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
            file = (self._root / name).resolve()
            file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, RuntimeError, ValueError):  # too long, a loop, a null character
            return False
        module = self._modules.get(file)
        if file in self._explicit_files or module is None:
            return False
        resolved: object = module
        for part in qualified_name.partition("[")[0].split("::"):
            resolved = getattr(resolved, part, None)
        return resolved is None
