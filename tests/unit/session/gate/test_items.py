"""The ids of gate items."""

from __future__ import annotations

import pytest

from gpubench_plugin.session.gate.plugin import benchmark_id, is_gate


@pytest.mark.parametrize(
    ("gate", "measured"),
    [
        ("test_x.py::test_a::gate", "test_x.py::test_a"),
        ("test_x.py::test_a::gate[fp32-ws1]", "test_x.py::test_a[fp32-ws1]"),
        ("d/test_x.py::TestA::test_a::gate[a-b]", "d/test_x.py::TestA::test_a[a-b]"),
        ("test_x.py::test_a::gate[a[b]::c]", "test_x.py::test_a[a[b]::c]"),
        ("test_x.py::gate::gate[a]", "test_x.py::gate[a]"),
    ],
)
def test_the_benchmark_of_a_gate_item_is_known_from_its_id(gate: str, measured: str) -> None:
    """The word stands between the function and the parameters."""
    assert is_gate(gate)
    assert benchmark_id(gate) == measured


@pytest.mark.parametrize(
    "nodeid", ["test_x.py::test_a", "test_x.py::test_gate[a]", "test_x.py::test_a::gateway", ""]
)
def test_other_ids_are_no_gate_items(nodeid: str) -> None:
    """A test whose name only contains the word is an ordinary one."""
    assert not is_gate(nodeid)
