"""How a session that starts no benchmark says why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.session.refusals import Refusals


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("no images", "t.py::a: no images\nto run the others, add --deselect=t.py::a"),
        ("--device: unknown 'gpu'", "--device: unknown 'gpu'"),
    ],
)
def test_others_run_only_where_an_option_is_not_to_blame(reason: str, message: str) -> None:
    """A refused option is to be mended; a refused benchmark may be left out."""
    item: Any = SimpleNamespace(nodeid="t.py::a")
    refusals = Refusals()
    refusals.add(item, reason)
    with pytest.raises(UsageProblem) as caught:
        refusals.raise_any(selected=2)
    assert str(caught.value) == message
