"""The id that was meant where pytest finds no benchmark of the one given.

A benchmark's id has parameters that no line of the test names: its precision, device, and ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.parametrization import fixture_names, is_benchmark
from gpubench_plugin.core.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


class NearestId:
    """Plugin that completes pytest's message; to be registered where an id is given."""

    def __init__(self, arguments: Iterable[str]) -> None:
        self._ids = {name.partition("[")[0]: name for name in map(_without_file, arguments)}
        self._names: dict[str, None] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(self) -> Generator[None, object, object]:
        """Remember benchmarks, of which pytest collects only those that it finds."""
        made = yield
        for item in made if isinstance(made, list) else ():
            if is_benchmark(item, fixture_names(item)):
                self._names[_without_file(item.nodeid)] = None
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Name the nearest benchmark to each that is not found."""
        try:
            return (yield)
        except pytest.UsageError as error:
            raise pytest.UsageError(*map(self._completed, error.args)) from None

    def _completed(self, message: object) -> object:
        first, *others = str(message).splitlines()
        test = _without_file(first)  # pytest leaves out the parameters
        same = [name for name in self._names if name.partition("[")[0] == test]
        target = self._ids.get(test, test)
        apart = {name: len(_parts(name) ^ _parts(target)) for name in same}
        near = [name for name in same if apart[name] == min(apart.values())]
        return "\n".join((first + suggest(target, near), *others))


def _without_file(node_id: str) -> str:
    return node_id.partition("::")[2]


def _parts(node_id: str) -> set[str]:
    """Its test and its parameters."""
    return {*node_id.replace("[", "-").removesuffix("]").split("-")}
