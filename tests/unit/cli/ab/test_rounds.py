"""The rounds that both sides take after the warm-up pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpubench_plugin.cli.ab.schedule import freeze

from gpubench_plugin.config import rounds_file
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.run_directory import RunDirectory


def test_both_sides_take_the_larger_number(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    """Of each benchmark that both have measured; the others follow their rule."""
    base = write_run(tmp_path / "b", {"t::a": 1.0, "t::only": 1.0, "t::c": "broken"}, rounds=12)
    head = write_run(tmp_path / "h", {"t::a": 1.0, "t::c": 1.0}, rounds=30)
    freeze(tmp_path / "rounds.json", base, head)
    read = rounds_file.read(tmp_path / "rounds.json", "--measure.rounds_file")
    assert {name: plan.rounds for name, plan in read.items()} == {"t::a": 30}


def test_samples_of_an_unknown_form_are_left_out(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    """Those of another version of gpubench are measured by their rule."""
    run = write_run(tmp_path / "b", {"t::a": 1.0, "t::b": 1.0})
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[1] = lines[1].replace('"durations_s"', '"times"')
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert list(StoredRun(RunDirectory(path=run)).rounds()) == ["t::b"]
