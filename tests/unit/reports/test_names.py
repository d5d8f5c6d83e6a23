"""Tests of the short names of benchmarks."""

from __future__ import annotations

import pytest

from gpubench_plugin.reports.names import name_room, short_names, without_parameter

FILE = "bench/test_mlp.py"


def test_a_benchmark_has_one_name_alone_and_in_company() -> None:
    """Its node id without the file and ``test_``; tests of one name in two files keep theirs."""
    ids = [f"{FILE}::test_mlp[8-fp32]", f"{FILE}::TestB::test_noop", f"{FILE}::test_mlp[8-bf16]"]
    names = short_names(ids)
    assert names.of(ids) == ["mlp[8-fp32]", "TestB::noop", "mlp[8-bf16]"]
    assert names.file == FILE
    assert [short_names([node_id]).of([node_id]) for node_id in ids] == [
        [name] for name in names.of(ids)
    ]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("a[fp32]", "fp32", "a"),
        ("a[8-bf16-true-ranks2]", "bf16-true", "a[8-ranks2]"),
        ("a[8-ranks2]", "ranks2", "a[8]"),
        ("a[8]", "fp32", "a[8]"),
    ],
)
def test_a_column_takes_its_value_out_of_the_name(name: str, value: str, expected: str) -> None:
    """Only as a whole parameter."""
    assert without_parameter(name, value) == expected


def test_no_two_benchmarks_have_one_name() -> None:
    """Tests of one name in two files keep their files."""
    ids = ["a/test_x.py::test_a", "b/test_x.py::test_a", "b/test_x.py::test_b"]
    assert short_names(ids).of(ids) == ["a/test_x.py::test_a", "b/test_x.py::test_a", "b"]
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
        (["resnet18_train[x-1]", "resnet18_infer[x-1]"], 13, ["resn…ain[x-1]", "resn…fer[x-1]"]),
        (
            ["gather[all-to-all]", "gather[all-gather]"],
            16,
            ["gathe…ll-to-all]", "gathe…ll-gather]"],
        ),
    ],
)
def test_long_names_lose_their_middle(names: list[str], room: int, expected: list[str]) -> None:
    """An ellipsis stands for the middle of the parameters, or of a name that has no room for it."""
    ids = [f"{FILE}::test_{name}" for name in names]
    assert short_names(ids).fitting(room).of(ids) == expected


def test_fitting_names_stay_distinct() -> None:
    """However little room there is."""
    ids = [f"{FILE}::test_{'x' * 60}{n}{'y' * 60}" for n in range(20)]
    for room in (3, 10, name_room(80)):
        names = short_names(ids).fitting(room).of(ids)
        assert len(set(names)) == len(ids)
    assert max(map(len, names)) <= name_room(80) == 30
