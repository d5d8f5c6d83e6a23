"""Gate items: ordinary tests, one per benchmark, that fail where the benchmark got worse.

They have no fixtures and no marks, and stand directly below the session: nothing of a module or a
package is set up again for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Self

    from gpubench_plugin.session.gate.rules import Ending

MARKER: Final = "::gate"
"""What the id of a gate item has between the test's name and its parameters."""


class GateItem(pytest.Item):
    """Judges one benchmark, once all have been measured.

    Args:
        benchmark: the item of the benchmark.
        ending: tells how the gate item of the benchmark with that node id ends.
    """

    def __init__(self, *, benchmark: pytest.Item, ending: Callable[[str], Ending], **kwargs: Any):
        super().__init__(**kwargs)
        self._benchmark_id = benchmark.nodeid
        self._place = benchmark.reportinfo()
        self._ending = ending

    @classmethod
    def of(cls, benchmark: pytest.Item, ending: Callable[[str], Ending]) -> Self:
        """The gate item of `benchmark`."""
        name, nodeid = _named(benchmark)
        made: Self = cls.from_parent(
            benchmark.session,
            name=name,
            nodeid=nodeid,
            path=benchmark.path,
            benchmark=benchmark,
            ending=ending,
        )
        return made

    def runtest(self) -> None:
        """Pass, fail or be skipped, as the verdicts on the benchmark say."""
        ending = self._ending(self._benchmark_id)
        self.user_properties.extend(ending.properties)
        if ending.outcome == "skipped":
            pytest.skip(ending.text)
        if ending.outcome == "failed":
            pytest.fail(ending.text, pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """The place of the benchmark, so that who follows the message comes to its source."""
        path, line, _ = self._place
        return path, line, self.name


def benchmark_id(nodeid: str) -> str:
    """The id of the benchmark that the gate item with `nodeid` judges."""
    head, _, tail = nodeid.rpartition(MARKER)
    return head + tail


def is_gate(nodeid: str) -> bool:
    """Whether it is the id of a gate item."""
    _, marker, tail = nodeid.rpartition(MARKER)
    return bool(marker) and (not tail or (tail.startswith("[") and tail.endswith("]")))


def _named(benchmark: pytest.Item) -> tuple[str, str]:
    """Name and id; a suffix behind the brackets would break what pytest makes of ids."""
    whole = benchmark.name
    function = getattr(benchmark, "originalname", None) or whole.partition("[")[0]
    params = whole.removeprefix(function)
    name = f"{function}{MARKER}{params}"
    return name, benchmark.nodeid.removesuffix(whole) + name
