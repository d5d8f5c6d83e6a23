"""Which benchmarks of the baseline no longer exist, as opposed to: were not selected today."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


class Removal:
    """What the collection of `session` says of benchmarks that it did not yield.

    A file was collected as a whole where one of its tests was collected and no argument of the
    command line names a single test of it. Of such a file a test is gone when its function is; a
    case of a function that is there may only have been left out by a flag.
    """

    def __init__(self, session: pytest.Session):
        here = session.config.invocation_params.dir
        named = {_file(here, text) for text in session.config.args if "::" in text}
        self._modules: dict[str, object] = {}
        for item in session.items:
            module = item.getparent(pytest.Module)
            if module is not None and item.path.resolve() not in named:
                self._modules[item.nodeid.partition("::")[0]] = module.obj

    def __call__(self, nodeid: str) -> bool:
        """Whether the benchmark with that id is gone."""
        file, _, rest = nodeid.partition("::")
        if file not in self._modules:
            return False
        found: object = self._modules[file]
        for name in rest.partition("[")[0].split("::"):
            found = getattr(found, name, None)
        return found is None


def _file(here: Path, argument: str) -> Path:
    return (here / argument.partition("::")[0]).resolve()
