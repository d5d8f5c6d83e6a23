"""How tests are cut into shards, and which nodes are not like the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.session.shards.nodes import outliers
from gpubench_plugin.session.shards.plan import History, cut


@pytest.mark.parametrize(
    ("known_s", "count", "expected"),
    [
        ({}, 2, ["ace", "bd"]),
        ({"a": 10.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}, 2, ["a", "bcde"]),
        ({"a": 3.0, "b": 3.0, "c": 2.0, "d": 2.0, "e": 2.0}, 2, ["ace", "bd"]),
        ({"a": 8.0, "b": 2.0, "c": 2.0}, 2, ["a", "bcde"]),
        ({}, 9, ["a", "b", "c", "d", "e"]),
    ],
)
def test_shards_take_about_equally_long(
    known_s: dict[str, float], count: int, expected: list[str]
) -> None:
    """The longest first, unknown ones like the median; each keeps the order of the tests."""
    parts = cut([*"abcde"], known_s, count)
    assert ["".join(part) for part in parts] == expected


def test_no_tests_are_no_shards() -> None:
    """An engine is asked for nothing then."""
    assert cut([], {}, 4) == []


def journal(folder: Path, *lines: dict[str, Any]) -> None:
    """A run with these lines."""
    folder.mkdir(parents=True)
    text = "".join(json.dumps({"schema_version": 1, **line}) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


def test_durations_are_those_of_the_latest_run(tmp_path: Path) -> None:
    """From the first phase of a benchmark to its record; a broken run tells nothing."""
    for second, flags in ((9, []), (5, ["launch_bound"])):
        phases = [
            {"event": "phase", "time": f"2026-01-01T00:00:0{n}Z", "benchmark": "a", "phase": name}
            for n, name in ((1, "start"), (2, "build"))
        ]
        end = {"event": "benchmark", "time": f"2026-01-01T00:00:0{second}Z", "id": "a"}
        start = {"event": "run_started", "time": "2026-01-01T00:00:00Z", "params": {}}
        folder = tmp_path / "default" / f"20260101T00000{10 - second}Z_run_000000"
        journal(folder, start, *phases, {**end, "flags": flags})
    newest = tmp_path / "default" / "20270101T000000Z_run_000000"
    journal(newest)
    (newest / "metrics.jsonl").write_text("no\n")
    history = History.of(tmp_path, {"a", "b"})
    assert (history.durations_s, set(history.launch_bound)) == ({"a": 4.0}, {"a"})


@pytest.mark.parametrize(
    ("step_s", "expected"),
    [
        ({"n1": 1.0, "n2": 1.001, "n3": 1.2}, ["n3 is not like the other nodes: +20% in noop"]),
        ({"n1": 1.0, "n2": 1.001, "n3": 1.04}, []),
        ({"n1": 1.0, "n2": 1.1, "n3": 1.2, "n4": 1.3}, []),
        ({"n1": 1.0, "n2": 1.5}, []),
    ],
)
def test_a_node_outside_the_band_of_the_others_is_named(
    step_s: dict[str, float], expected: list[str]
) -> None:
    """Not one of two, nor one of many that all differ."""
    assert [*outliers({"noop": step_s})] == expected
