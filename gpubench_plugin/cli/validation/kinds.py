"""The kinds of files that gpubench writes: how each is recognized, and what it must satisfy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from gpubench_plugin.cli.validation.problems import Problem, error_problem, schema_problems
from gpubench_plugin.core.errors import BrokenFile, GpubenchError, UsageProblem
from gpubench_plugin.environment import files, json_files, stored

Check = Callable[[Path, str], Iterator[Problem]]
"""Problems of a file, given its path and text."""

_AB_STATE: Final = "state.json"


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """A validated file; it is valid if it has no problems."""

    path: Path
    kind: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """A kind of file: its usual `file_name`, and for JSON `keys` that no earlier kind has.

    The name may have folders, and ``*`` for any text.
    """

    file_name: str
    check: Check
    keys: frozenset[str] = frozenset()


def validate(path: Path) -> list[FileReport]:
    """Validate a file, or all files of a run or comparison of ``gpubench ab`` in a folder.

    Raises:
        UsageProblem: there is no such file, or it is of no kind that gpubench writes.
        ResultsError: the operating system refuses to read it.
    """
    if not path.is_dir():
        return [_report(path)]
    is_run = (path / "metrics.jsonl").is_file() or (path / _AB_STATE).is_file()
    if not is_run:
        raise UsageProblem(
            f"{path}: neither a run nor a comparison: no metrics.jsonl, no {_AB_STATE}"
        )
    return [_report(file) for kind in KINDS.values() for file in _files(path, kind.file_name)]


def _files(folder: Path, name: str) -> list[Path]:
    """The files of that name in `folder`, a link that leads nowhere among them."""
    if "*" in name:
        return sorted(folder.glob(name))
    return [folder / name] if os.path.lexists(folder / name) else []


def _report(path: Path) -> FileReport:
    try:
        data = files.read(path, limit=json_files.LIMIT_BYTES)
    except FileNotFoundError:
        raise UsageProblem(f"{path}: no such file") from None
    name = _kind_of(path, data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems: tuple[Problem, ...] = (Problem(line=line, key="", message="is not UTF-8"),)
    else:
        problems = tuple(_problems(KINDS[name], path, text))
    return FileReport(path=path, kind=name, problems=problems)


def _problems(kind: FileKind, path: Path, text: str) -> Iterator[Problem]:
    try:
        yield from kind.check(path, text)
    except GpubenchError as error:
        yield error_problem(error, str(path))
    except json_files.MALFORMED as error:
        yield Problem(line=1, key="", message=f"is malformed: {error!r:.200}")


def _kind_of(path: Path, data: bytes) -> str:
    """Kind of the file by its name, else by its keys.

    Raises:
        UsageProblem: it is none of them.
    """
    for name, kind in KINDS.items():
        if path.absolute().match(kind.file_name):
            return name
    keys = _keys(data)
    for name, kind in KINDS.items():
        if kind.keys and kind.keys <= keys:
            return name
    names = ", ".join(kind.file_name for kind in KINDS.values())
    raise UsageProblem(f"{path}: not recognized as a file with a schema; those are: {names}")


def _keys(data: bytes) -> frozenset[str]:
    """Keys of the JSON object, or of that in the first line; none of other files."""
    for part in (data, data.partition(b"\n")[0]):
        try:
            fields = json_files.parse(part, "")
        except BrokenFile:
            continue
        if isinstance(fields, dict):
            return frozenset(fields)
    return frozenset()


def _versioned(
    module: str, record: str, reader: Callable[[Path, str], object] | None = None
) -> Check:
    """Check of a JSON file by the `record` of its `module`, which has its FORMAT, and the `reader`.

    An older version, where there is one, breaks the schema and is checked by the reader alone.
    """

    def check(path: Path, text: str) -> Iterator[Problem]:
        source = import_module(f"gpubench_plugin.{module}")
        fields = source.FORMAT.parse(text, str(path))
        is_newest = fields[source.FORMAT.key] == source.FORMAT.newest
        problems = list(schema_problems(getattr(source, record), fields, text)) if is_newest else []
        yield from problems
        if reader is not None and not problems:
            reader(path, text)

    return check


def _read_summary(path: Path, text: str) -> None:
    from gpubench_plugin.results import summary

    summary.parse(json_files.parse(text.encode(), str(path)), str(path))


def _read_tags(path: Path, text: str) -> None:
    from gpubench_plugin.results.tags import from_text

    from_text(text, str(path))


def _read_baseline(path: Path, text: str) -> None:
    from gpubench_plugin.baselines.model import from_text

    from_text(text, str(path))


def _check_journal(path: Path, text: str) -> Iterator[Problem]:
    from gpubench_plugin.results import journal, journal_schema

    records = _records_of_events(journal_schema.Line)
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = journal.FORMAT.parse(line, "it")
        except BrokenFile as error:
            torn = " (cut off when the session was killed; readers ignore it)"
            reason = str(error).replace(", at line 1", "")
            message = f"invalid journal line: {reason}{torn if number == len(lines) else ''}"
            yield Problem(line=number, key="", message=message)
            continue
        record = records.get(str(fields.get("event")))
        if record is not None:  # readers ignore unknown events
            yield from schema_problems(record, fields, line, line=number)


def _check_rank(path: Path, text: str) -> Iterator[Problem]:
    from gpubench_plugin.core.records import Samples

    for number, line in enumerate(text.splitlines(), start=1):
        try:
            fields = json_files.parse(line.encode(), "it")
        except BrokenFile as error:
            yield Problem(line=number, key="", message=f"invalid line: {error}")
            continue
        names = ("benchmark", "time", "rank")
        fields = fields if isinstance(fields, dict) else {}
        for name in (name for name in names if name not in fields):
            yield Problem(line=number, key=name, message="missing key")
        if "samples" in fields:
            for problem in schema_problems(Samples, fields["samples"], "", line=number):
                yield replace(problem, key=f"samples.{problem.key}".rstrip("."))
        elif not isinstance(fields.get("events"), list):
            yield Problem(line=number, key="", message="has neither samples nor events")


def _check_checkpoint(path: Path, text: str) -> Iterator[Problem]:
    from gpubench_plugin.training.manifest import Manifest

    manifest = Manifest.read(path)
    manifest.verify_file(path.with_name(manifest.file))
    yield from ()


def _records_of_events(line: Any) -> dict[str, Any]:
    """Record of each event of the union `line`."""
    return {
        event: record
        for record in get_args(get_args(line)[0])
        for event in get_args(get_type_hints(record)["event"])
    }


def _check_table(path: Path, text: str) -> Iterator[Problem]:
    from gpubench_plugin.results.csv_table import table_problems

    for line, column, message in table_problems(text):
        yield Problem(line=line, key=column, message=message)


def _check_configurations(path: Path, text: str) -> Iterator[Problem]:
    from gpubench_plugin.config.options import SECTIONS
    from gpubench_plugin.config.yaml_reader import read_resolved

    for node_id, configuration in read_resolved(path).items():
        start = max(text.find(node_id), 0)
        if not isinstance(configuration, Mapping):
            yield Problem(line=_line(text, start), key=node_id, message="is not a mapping")
            continue
        for section in configuration.keys() - SECTIONS:
            line = _line(text, max(text.find(f"{section}:", start), start))
            yield Problem(line=line, key=node_id, message=f"unknown section {section!r}")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _check_system(path: Path, text: str) -> Iterator[Problem]:
    from gpubench_plugin.environment import system_facts

    stored.Format(kind="system facts file", newest=system_facts.SCHEMA_VERSION).parse(
        text, str(path)
    )
    yield from ()


def _check_pytest_benchmark(path: Path, text: str) -> Iterator[Problem]:
    from gpubench_plugin.results.sources import load_run

    load_run(str(path.absolute()), results_dir=path.parent, cwd=path.parent)
    yield from ()


KINDS: Final[Mapping[str, FileKind]] = {
    "summary": FileKind(
        file_name="summary.json",
        keys=frozenset({"run_id", "experiment", "benchmarks"}),
        check=_versioned("results.summary", "Summary", _read_summary),
    ),
    "journal": FileKind(
        file_name="metrics.jsonl", keys=frozenset({"event", "time"}), check=_check_journal
    ),
    "csv": FileKind(file_name="summary.csv", check=_check_table),
    "configurations": FileKind(file_name="config_resolved.yaml", check=_check_configurations),
    "system": FileKind(
        file_name="system.json", keys=frozenset({"hostname", "python"}), check=_check_system
    ),
    "pytest-benchmark": FileKind(
        file_name="benchmark.json",
        keys=frozenset({"machine_info", "benchmarks"}),
        check=_check_pytest_benchmark,
    ),
    "verdicts": FileKind(
        file_name="verdicts.json",
        keys=frozenset({"benchmarks", "environment_differences"}),
        check=_versioned("results.verdicts", "VerdictDocument"),
    ),
    "tags": FileKind(
        file_name="tags.json",
        keys=frozenset({"tags"}),
        check=_versioned("results.tags", "TagFile", _read_tags),
    ),
    "comparison": FileKind(
        file_name=_AB_STATE,
        keys=frozenset({"asked", "launches"}),
        check=_versioned("cli.ab.state", "State"),
    ),
    "baseline": FileKind(
        file_name="baselines/*.json",
        keys=frozenset({"name", "changes"}),
        check=_versioned("baselines.model", "BaselineFile", _read_baseline),
    ),
    "rank": FileKind(
        file_name="ranks/rank-*.jsonl",
        keys=frozenset({"benchmark", "rank"}),
        check=_check_rank,
    ),
    "checkpoint": FileKind(
        file_name="checkpoints/*/*.json",
        keys=frozenset({"format", "sha256", "tensors"}),
        check=_check_checkpoint,
    ),
    "rounds": FileKind(
        file_name="rounds.json",
        keys=frozenset({"schema_version", "benchmarks"}),
        check=_versioned("config.rounds_file", "RoundsFile"),
    ),
}
"""By name; the first whose file name or keys fit is taken."""
