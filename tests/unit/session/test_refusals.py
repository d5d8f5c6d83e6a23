"""How a session that starts no benchmark says why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.session.start import Refusals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("no images", "t.py::a: no images\nto run the others, add --deselect=t.py::a"),
        ("--device: unknown 'gpu'", "--device: unknown 'gpu'"),
    ],
)
def test_others_run_only_where_an_option_is_not_to_blame(reason: str, message: str) -> None:
    """A refused option is to be mended; a refused benchmark may be left out."""
    assert refused({"t.py::a": reason}, ["t.py::b"]) == message


def refused(reasons: Mapping[str, str], others: Iterable[str]) -> str:
    """The message, where some tests are refused and the `others` are fine."""
    items: dict[str, Any] = {id: SimpleNamespace(nodeid=id) for id in (*reasons, *others)}
    refusals = Refusals()
    for id, reason in reasons.items():
        refusals.add(items[id], reason)
    with pytest.raises(UsageProblem) as caught:
        refusals.raise_any(items.values())
    return str(caught.value)
