"""Tests of the short names of benchmarks."""

from __future__ import annotations

import pytest

from gpubench_plugin.reports.names import name_room, short_names
from gpubench_plugin.reports.text import UNICODE

FILE = "bench/test_mlp.py"


def test_names_leave_out_what_all_have_in_common() -> None:
    """File, ``test_``, precision and world size are said once."""
    names = short_names([f"{FILE}::test_mlp[8-fp32-ws1]", f"{FILE}::TestB::test_noop[ws1]"])
    assert [*names.by_id.values()] == ["mlp[8]", "TestB::noop"]
    assert names.common == (FILE, "precision fp32", "world size 1")


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        (["[fp32-ws1]", "[bf16-true-ws1]"], ["[fp32]", "[bf16-true]"]),
        (["[bf16-true-ws1]", "[8-bf16-true-ws2]"], ["[ws1]", "[8-ws2]"]),
        (["[all-to-all-fp32-ws1]", "[all-gather-fp32-ws1]"], ["[all-to-all]", "[all-gather]"]),
        (["[fp32-ws1-cpu]", "[fp32-ws1-cuda]"], ["[cpu]", "[cuda]"]),
        (["[fp32-ws1]", ""], ["[fp32-ws1]", ""]),
        (["[a-ws1]", "[ws1-a]"], ["[a-ws1]", "[ws1-a]"]),
    ],
)
def test_parameters_stay_where_they_tell_benchmarks_apart(
    variants: list[str], expected: list[str]
) -> None:
    """Only a whole precision or world size goes, and none where a benchmark has no parameters."""
    ids = [f"{FILE}::test_a{variant}" for variant in variants]
    names = short_names(ids).of(ids)
    if expected == variants == ["[a-ws1]", "[ws1-a]"]:
        assert names == ids  # both would be a[a]
    else:
        assert names == [f"a{variant}" for variant in expected]


def test_no_two_benchmarks_have_one_name() -> None:
    """Tests of one name in two files keep their files; a single benchmark keeps its parameters."""
    ids = ["a/test_x.py::test_a", "b/test_x.py::test_a", "b/test_x.py::test_b"]
    assert short_names(ids).of(ids) == ["a/test_x.py::test_a", "b/test_x.py::test_a", "b"]
    assert short_names([f"{FILE}::test_mlp[fp32-ws1]"]).of([f"{FILE}::test_mlp[fp32-ws1]"]) == [
        "mlp[fp32-ws1]"
    ]
    odd = ["::", "\x1b::\n[", "[", ""]
    assert len({*short_names(odd).of(odd)}) == len(odd)


@pytest.mark.parametrize(
    ("names", "room", "expected"),
    [
        (["a_long_test[x]", "b[y]"], 14, ["a_long_test[x]", "b[y]"]),
        (
            ["train[deep-amp-nhwc]", "train[deep-fp32-nhwc]"],
            18,
            ["train[deep…p-nhwc]", "train[deep…2-nhwc]"],
        ),
        (["resnet18_train[x-1]", "resnet18_infer[x-1]"], 13, ["…train[x-1]", "…infer[x-1]"]),
        (
            ["gather[all-to-all]", "gather[all-gather]"],
            16,
            ["gathe…ll-to-all]", "gathe…ll-gather]"],
        ),
    ],
)
def test_long_names_lose_what_they_share_first(
    names: list[str], room: int, expected: list[str]
) -> None:
    """An ellipsis stands for the beginning of all names, then for the middle of parameters."""
    ids = [f"{FILE}::test_{name}" for name in names]
    assert short_names(ids).fitting(room, UNICODE).of(ids) == expected


def test_fitting_names_stay_distinct() -> None:
    """However little room there is."""
    ids = [f"{FILE}::test_{'x' * 60}{n}{'y' * 60}" for n in range(20)]
    for room in (3, 10, name_room(80)):
        names = short_names(ids).fitting(room, UNICODE).of(ids)
        assert len(set(names)) == len(ids)
    assert max(map(len, names)) <= name_room(80) == 30
