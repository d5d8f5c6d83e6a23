"""``gpubench validate``: whether files that gpubench wrote are intact."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.cli.commands._places import add_locations, resolver_of, show
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.environment import system_facts
from gpubench_plugin.reports.text import printable
from gpubench_plugin.results.run_directory import find_run
from gpubench_plugin.results.sources import load_run
from gpubench_plugin.system import files, json_files, stored


class Validate(Command):
    """Reads JSON files that gpubench wrote, by their schemas: single ones, or those of a folder.

    Exits with 0 if all are valid, with 4 if one is not, and with 2 for a file that is missing or
    has another name.
    """

    help: ClassVar[str] = "validate files written by gpubench, or a whole run"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Files, and output format."""
        text = "file, a run by its folder or id, or folder of a gpubench ab comparison"
        parser.add_argument("files", metavar="FILE", nargs="+", help=text)
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print a line for each file: that it is valid, or the first thing that is wrong."""
        places = resolver_of(options)
        reports = [
            report(file) for name in options.files for file in _files_in(_path(name, places), name)
        ]
        lines = (printable(r["problem"] or f"{r['path']}: valid ({r['kind']})") for r in reports)
        show(options, {"files": reports}, lines)
        is_valid = not any(r["problem"] for r in reports)
        return ExitCode.OK if is_valid else ExitCode.INFRASTRUCTURE


def _path(name: str, places: Resolver) -> Path:

    if os.path.lexists(name):
        return Path(name)
    try:
        return find_run(places.results_dir, name, cwd=places.here).path
    except UsageProblem as problem:
        raise UsageProblem(f"{name}: no such file, and {problem}") from None


def _files_in(path: Path, name: str) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [path / name for name, _ in KINDS.values() if os.path.lexists(path / name)]
    if not {"metrics.jsonl", "state.json"} & {file.name for file in files}:
        raise UsageProblem(f"{name}: neither a run nor a comparison: no metrics.jsonl, state.json")
    return files


def report(path: Path) -> dict[str, Any]:
    """Kind of the file, and what is wrong with it; raises UsageProblem for one of no kind."""
    kind = _kind_of(path)
    _, read = KINDS[kind]
    try:
        read(path.absolute())
    except GpubenchError as error:
        problem = str(error)
    except json_files.MALFORMED as error:
        problem = f"{path} is malformed: {error!r:.200}"
    else:
        problem = ""
    return {"path": str(path), "kind": kind, "problem": problem}


def _kind_of(path: Path) -> str:
    for name, (pattern, _) in KINDS.items():
        if path.absolute().match(pattern):
            return name
    patterns = ", ".join(pattern for pattern, _ in KINDS.values())
    raise UsageProblem(f"{path}: no name of a file with a schema; those are: {patterns}")


def _read_record(name: str, path: Path) -> object:
    """Read a file by the schema of the record of that name, and its module's FORMAT."""
    module, _, record = name.rpartition(".")
    source = import_module(f"gpubench_plugin.{module}")
    fields = source.FORMAT.load(path)
    return stored.restore(getattr(source, record), fields, str(path), strict=True)


def _read_journal(path: Path) -> None:
    from gpubench_plugin.results import journal, journal_schema

    with files.open_to_read(path, limit=json_files.LIMIT_BYTES) as file:
        for number, line in enumerate(file, start=1):
            label = f"{path}, line {number}"
            fields = journal.FORMAT.parse(line, label)
            record = journal_schema.LINES.get(fields.get("event", ""), journal_schema.OtherEvent)
            stored.restore(record, line, label, strict=True)


KINDS: Final[Mapping[str, tuple[str, Callable[[Path], object]]]] = {
    "summary": ("summary.json", partial(_read_record, "results.summary.Summary")),
    "journal": ("metrics.jsonl", _read_journal),
    "system": ("system.json", system_facts.FORMAT.load),
    "pytest-benchmark": (
        "benchmark.json",
        lambda path: load_run(str(path), results_dir=path.parent, cwd=path.parent),
    ),
    "verdicts": ("verdicts.json", partial(_read_record, "results.verdicts.VerdictDocument")),
    "tags": ("tags.json", partial(_read_record, "results.run_directory.TagFile")),
    "comparison": ("state.json", partial(_read_record, "cli.ab.saved_state.SavedState")),
    "baseline": ("baselines/*.json", partial(_read_record, "baselines.model.BaselineFile")),
    "rounds": ("rounds.json", partial(_read_record, "config.rounds_file.RoundsFile")),
}
"""Pattern of the name of each kind of file, and its reader."""
