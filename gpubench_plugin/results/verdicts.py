"""Verdict document: ``gpubench compare --format=json`` and a run's ``verdicts.json``.

The published schema is generated from the records, and a test keeps it current::

    gpubench schema verdicts > docs/schemas/verdicts.schema.json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Literal

from gpubench_plugin.core.records import Json, doc, shared
from gpubench_plugin.core.verdicts import Comparison, FactDifference, Verdict, is_regression
from gpubench_plugin.system import json_files, stored

FORMAT: Final = stored.Format(kind="gpubench verdict file", newest=1)


@dataclass(frozen=True, kw_only=True)
class BenchmarkVerdict(Verdict):
    """A verdict with the labels of its comparison; unknown numbers are null."""

    base_label: str = field(default="", metadata=doc("Label of the base"))
    head_label: str = field(default="", metadata=doc("Label of the head"))


@dataclass(frozen=True, kw_only=True)
class EnvironmentDifference(FactDifference):
    """A fact that differs between base and head; null on the side that lacks it."""

    head_label: str = ""


@dataclass(frozen=True, kw_only=True)
class VerdictDocument:
    """Verdicts of one or several heads against one base."""

    __pydantic_config__: ClassVar[Json] = {"title": "gpubench verdicts"}

    schema_version: Literal[1] = 1
    base_label: str = ""
    head_labels: tuple[str, ...] = ()
    benchmarks: tuple[BenchmarkVerdict, ...]
    environment_differences: tuple[EnvironmentDifference, ...]
    notes: tuple[str, ...] = ()

    def for_benchmark(self, node_id: str) -> tuple[Verdict, ...]:
        """Verdicts on one benchmark and its metrics, without labels."""
        rows = (row for row in self.benchmarks if row.id == node_id)
        return tuple(Verdict(**shared(Verdict, row)) for row in rows)

    @property
    def comparison(self) -> Comparison:
        """The comparison of its only head."""
        return Comparison(
            base=self.base_label,
            head="".join(self.head_labels[:1]),
            verdicts=tuple(Verdict(**shared(Verdict, row)) for row in self.benchmarks),
            environment_differences=self.environment_differences,
            notes=self.notes,
        )

    @property
    def regressed(self) -> tuple[str, ...]:
        """Benchmarks whose verdicts exclude their run from the samples."""
        rows = self.benchmarks
        return tuple(
            row.id for row in rows if is_regression(row.kind, row.method, base=self.base_label)
        )


def document(comparisons: Sequence[Comparison]) -> Json:
    """Verdicts as JSON types."""
    verdicts = VerdictDocument(
        base_label=comparisons[0].base if comparisons else "",
        head_labels=tuple(comparison.head for comparison in comparisons),
        benchmarks=tuple(
            BenchmarkVerdict(
                **vars(verdict), base_label=comparison.base, head_label=comparison.head
            )
            for comparison in comparisons
            for verdict in comparison.verdicts
        ),
        environment_differences=tuple(
            EnvironmentDifference(**vars(difference), head_label=comparison.head)
            for comparison in comparisons
            for difference in comparison.environment_differences
        ),
        notes=tuple(dict.fromkeys(note for comparison in comparisons for note in comparison.notes)),
    )
    plain: Json = json_files.jsonable(stored.dump(verdicts))
    return plain


def to_text(comparisons: Sequence[Comparison]) -> str:
    """Serialize ``verdicts.json`` as strict ASCII JSON."""
    return json_files.text(document(comparisons), indent=2) + "\n"


def read(path: Path) -> VerdictDocument:
    """Read the verdicts at `path`; raises UsageProblem, BrokenFile or ResultsError."""
    return parse(json_files.load(path, limit=FORMAT.limit), str(path))


def parse(document: object, label: str) -> VerdictDocument:
    """Validate parsed JSON as verdicts, called `label` in messages; raises BrokenFile."""
    return stored.restore(VerdictDocument, FORMAT.check(document, label), label)
