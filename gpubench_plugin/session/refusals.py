"""Benchmarks that are refused before anything is measured: one message for all of them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

_SHOWN: Final = 4
"""Reasons, or tests to deselect, in a message."""


class Refusals:
    """Reasons for which a session starts no benchmark, each with the tests that it holds for."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}

    def add(self, item: pytest.Item, reason: str) -> None:
        """Add the `reason` for which `item` is refused."""
        reason = reason.removeprefix(f"{item.nodeid}: ")
        self._ids.setdefault(reason, []).append(item.nodeid)

    def raise_any(self, items: Iterable[pytest.Item]) -> None:
        """Refuse the session with all reasons; of the benchmarks `items` others may be fine.

        Raises:
            UsageProblem: there is a reason.
        """
        if not self._ids:
            return
        lines = [_line(reason, ids) for reason, ids in list(self._ids.items())[:_SHOWN]]
        if (rest := len(self._ids) - _SHOWN) > 0:
            lines.append(f"and {counted(rest, 'more reason')}")
        refused = [node_id for ids in self._ids.values() for node_id in ids]
        others = {item.nodeid for item in items} - {*refused}
        if others and len(refused) <= _SHOWN and not any(map(_is_of_option, self._ids)):
            options = (f"--deselect={shlex.quote(node_id)}" for node_id in refused)
            lines.append(f"to run the others, add {' '.join(options)}")
        raise UsageProblem("\n".join(lines))


def _is_of_option(reason: str) -> bool:
    """Whether an option is refused, whichever benchmark meets it first: it is to be mended."""
    return reason.startswith("--")


def _line(reason: str, ids: list[str]) -> str:
    if _is_of_option(reason):
        return reason
    more = f" (and {counted(len(ids) - 1, 'more benchmark')})" if len(ids) > 1 else ""
    return f"{ids[0]}: {reason}{more}"
