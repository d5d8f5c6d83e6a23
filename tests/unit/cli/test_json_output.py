"""The documents of ``--format=json``, which every command has."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli.main import build_parser, main
from tests.support.runs_builder import MLP, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A, B = run_id(0), run_id(1)
ARGUMENTS = {
    "accept": [A, "mlp", "--reason=r"],
    "baseline set": ["other", A],
    "baseline list": [],
    "baseline show": ["main"],
    "baseline rm": ["main"],
    "compare": [A, B],
    "db": ["rebuild"],
    "doctor": [],
    "explain": [A, MLP],
    "history": ["mlp"],
    "list": [],
    "runs list": [],
    "runs show": [A],
    "runs tag": [A, "good"],
    "runs prune": ["--keep-last=1", "--runs", "--dry-run"],
    "runs artifacts": [A],
    "schema": [],
    "validate": [f"results/default/{A}/summary.json"],
    "watch": [A, "--once"],
}
"""Arguments of the commands that measure nothing."""


def leaves(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, Any]]:
    """Commands and actions that take no further one, with their parsers."""
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in nested:
        for word, child in action.choices.items():
            yield from leaves(child, f"{name} {word}".strip())
    if not nested:
        yield name, parser


def test_every_command_has_json() -> None:
    """Also every action of a command, and one that is added."""
    parsers = dict(leaves(build_parser()))
    del parsers["measure"]  # which becomes pytest
    assert [name for name, p in parsers.items() if "--format" not in p._option_string_actions] == []
    assert ARGUMENTS.keys() - parsers.keys() == set()
    for parser in parsers.values():
        assert "json" in parser._option_string_actions["--format"].choices


@pytest.mark.slow
@pytest.mark.parametrize("command", ARGUMENTS)
def test_the_output_is_one_document(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An object with the version of its form; a schema says which it follows instead."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUBENCH_REGISTRY", raising=False)
    for number in range(2):
        run = write_run(tmp_path / "results", number)
        run.config_resolved.write_text(f"{MLP}: {{training: {{batch_size: 4}}}}\n")
    assert main(["baseline", "set", "main", A]) == 0
    capsys.readouterr()
    assert main([*command.split(), *ARGUMENTS[command], "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.get("schema_version") == 1 or "$schema" in document


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["db", "ingest"], {"action", "stored", "unchanged", "in_progress", "errors"}),
        (["baseline", "set", "main", A, "--if-missing"], {"changed", "baseline", "notes"}),
    ],
)
def test_the_other_actions_have_their_facts(
    arguments: list[str],
    names: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Counts and notes by name, as the text has them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUBENCH_REGISTRY", "")
    write_run(tmp_path / "results", 0)
    assert main(["baseline", "set", "main", A]) == 0
    assert main(["db", "ingest"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"schema_version", *names}
