"""How a session that starts no benchmark says why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.session.start import refusal_text


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("no images", "t.py::a: no images\nto run the others, add --deselect=t.py::a"),
        ("--device: unknown 'gpu'", "--device: unknown 'gpu'"),
    ],
)
def test_others_run_only_where_an_option_is_not_to_blame(reason: str, message: str) -> None:
    """A refused option is to be mended; a refused benchmark may be left out."""
    items: list[Any] = [SimpleNamespace(nodeid=id) for id in ("t.py::a", "t.py::b")]
    assert refusal_text({reason: ["t.py::a"]}, items) == message
