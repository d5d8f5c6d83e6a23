"""Tests of stored forms: versions of files, and records as JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from gpubench_plugin.baselines.model import from_text
from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.config import rounds_file
from gpubench_plugin.core.errors import GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.results import verdicts
from gpubench_plugin.results.journal import JournalTail
from gpubench_plugin.results.run_directory import RunDirectory, tags_of
from gpubench_plugin.results.sources import load_run
from gpubench_plugin.system import stored
from gpubench_plugin.training.checkpoint import Manifest

DATA: Final = Path(__file__).parents[2] / "support" / "data" / "stored"
RUN: Final = RunDirectory(path=DATA / "kept" / "20261123T180949Z_run_03dd66")


def read_file(path: Path) -> object:
    return load_run(str(path), results_dir=path.parent, cwd=path.parent)


READERS: Final[Mapping[str, tuple[Path, Callable[[Path], object]]]] = {
    "summary": (RUN.summary, read_file),
    "journal": (RUN.journal, lambda path: [*JournalTail(path)]),
    "verdicts": (RUN.verdicts, verdicts.read),
    "pytest-benchmark": (RUN.benchmark, read_file),
    "tags": (RUN.path / "tags.json", lambda path: tags_of(RunDirectory(path=path.parent))),
    "baseline": (
        DATA / "baselines" / "main.json",
        lambda path: from_text(path.read_text(), str(path)),
    ),
    "rounds": (DATA / "rounds.json", lambda path: rounds_file.read(path, "measure.rounds_file")),
    "manifest": (DATA / "checkpoint.json", Manifest.read),
    "state": (DATA / "ab" / "state.json", lambda path: SavedState.read(path.parent)),
}
"""Of each kind of file one that is read, and its reader."""

FORMAT: Final = stored.Format(kind="thing", newest=2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((json.dumps({"schema_version": v}), "reads 2 only") for v in (True, "2", 1, 2.0, 3)),
        ("{}", "it is not a thing: it has no schema_version"),
        ("[]", "it is not a thing"),
    ],
)
def test_only_the_current_version_is_read(text: str, reason: str) -> None:
    """Another one, or none, is refused in one line."""
    assert FORMAT.parse('{"schema_version": 2}', "it") == {"schema_version": 2}
    with pytest.raises(ResultsError, match=reason) as problem:
        FORMAT.parse(text, "it")
    assert "\n" not in str(problem.value)


def with_version(text: str, version: int | None) -> str:
    """The `text` of a file of which every version, one for each line, was changed if given."""
    lines = text.splitlines() if text.startswith('{"') else [text]
    documents = [json.loads(line) for line in lines]
    for document in documents:
        section = document["gpubench"] if "machine_info" in document else document
        if version is not None:
            section["version" if "format" in section else "schema_version"] = version
    return "\n".join(map(json.dumps, documents))


@pytest.mark.parametrize("kind", READERS)
def test_every_kind_of_file_is_read_in_its_version(kind: str, tmp_path: Path) -> None:
    """Another one is refused with the name of the file."""
    path, read = READERS[kind]
    copy = tmp_path / path.name
    (tmp_path / "system.json").write_text(RUN.system.read_text())
    copy.write_text(with_version(path.read_text(), None))
    assert read(copy)
    copy.write_text(with_version(path.read_text(), 99))
    with pytest.raises(UsageProblem, match=r"ersion 99; this gpubench reads \d only$") as problem:
        read(copy)
    assert isinstance(problem.value, ResultsError) or kind == "rounds"
    assert str(copy) in str(problem.value)


@dataclass(frozen=True, kw_only=True)
class Part:
    value: float


@dataclass(frozen=True, kw_only=True)
class Whole:
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 # read by pydantic from the class

    id: str = field(metadata={"description": "Its name", "min_length": 1})
    kind: str = field(default="", metadata={"alias": "verdict"})
    count: int = field(default=1, metadata={"ge": 1})
    parts: tuple[Part, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def test_a_record_is_restored_from_its_fields() -> None:
    """Nested records too; a key may have another name than the field."""
    record = Whole(id="a", kind="new", parts=(Part(value=math.nan),), facts={"b": (1, {2: 3})})
    fields = stored.dump(record)
    assert fields["verdict"] == "new"
    assert fields["facts"] == {"b": (1, {2: 3})}
    assert math.isnan(fields["parts"][0]["value"])
    again = stored.restore(Whole, {**fields, "parts": [{"value": 2.0}]}, "it")
    assert again == Whole(id="a", kind="new", parts=(Part(value=2.0),), facts=record.facts)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"id": ""}, "id: "),
        ({"id": "a", "count": 0}, "count: "),
        ({"id": "a", "kind": "new"}, "kind: "),
        ({"id": "a", "parts": [{"value": 1}, {"value": "x"}]}, r"parts\.1\.value: "),
        ({"id": "a", "cuont": 2}, "cuont: unknown key$"),
        ({"di": "a"}, "id: missing key$"),
        ([], "the document: "),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_fields_that_break_the_schema_are_refused(fields: Any, place: str, strict: bool) -> None:
    """The message says where."""
    with pytest.raises(GpubenchError, match=rf"^it violates the schema at {place}"):
        stored.restore(Whole, fields, "it", strict=strict)


def test_numbers_in_texts_are_refused_where_it_is_strict() -> None:
    """A tuple is taken from a list all the same; what is no Unicode is refused."""
    fields: dict[str, Any] = {"id": "a", "count": "2", "parts": []}
    assert stored.restore(Whole, fields, "it").count == 2
    for invalid in (fields, {"id": "a", "count": True}, {"id": "\ud800"}):
        with pytest.raises(ResultsError, match="violates the schema"):
            stored.restore(Whole, invalid, "it", strict=True)
    assert stored.restore(Whole, {"id": "a", "parts": []}, "it", strict=True) == Whole(id="a")


def test_descriptions_and_bounds_stand_in_the_schema() -> None:
    """As the metadata of the fields says."""
    schema = stored.json_schema(Whole)
    assert schema["$schema"] == stored.SCHEMA_URL
    assert schema["properties"]["id"] == {
        "description": "Its name",
        "minLength": 1,
        "title": "Id",
        "type": "string",
    }
    assert schema["properties"]["count"]["minimum"] == 1
    assert schema["additionalProperties"] is False
