"""Ids of earlier versions, which named a precision that the benchmark does not use."""

from __future__ import annotations

import pytest

from gpubench_plugin.config.parametrization import former_ids


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a.py::test_mm[fp32-ws1]", "a.py::test_mm[ws1]"),
        ("a.py::test_mm[64-bf16-true-ws1-cpu]", "a.py::test_mm[64-ws1-cpu]"),
        ("a.py::test_mm[64-amp]", "a.py::test_mm[64]"),
        ("a.py::test_mm[tf32]", "a.py::test_mm"),
    ],
)
def test_an_id_is_known_by_what_is_left_of_it(old: str, new: str) -> None:
    """Wherever the precision stood among the parameters."""
    assert former_ids([old, "a.py::test_other[fp32-ws1]"], [new]) == {new: old}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["test_mm[fp32-ws1]"], ["test_mm[fp32-ws1]", "test_mm[ws1]"]),  # both are there today
        (["test_mm[fp32-ws1]", "test_mm[ws1]"], ["test_mm[ws1]"]),  # both were there
        (["test_mm[fp32x-ws1]"], ["test_mm[ws1]"]),
        (["test_mm[ws1]"], ["test_mm[fp32-ws1]"]),
        (["test_fp32"], ["test"]),
    ],
)
def test_another_benchmark_is_no_former_one(old: list[str], new: list[str]) -> None:
    """No hint is better than a false one."""
    assert former_ids(old, new) == {}
