"""One run by whatever names it: a path, an id, or a baseline; here or in the registry."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.errors import RegistryError, UsageProblem
from gpubench_plugin.results.sources import read_run
from gpubench_plugin.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.compare.baselines.resolve import Reference


@dataclass(frozen=True, kw_only=True)
class NamedRun:
    """A run, and lines for the user about how it was found."""

    run: Run
    notes: tuple[str, ...] = ()


def named_run(text: str, *, url: str, results_dir: Path, here: Path) -> NamedRun:
    """The run that `text` names; its label is `text`.

    What is no path and no run here is looked for among the baselines, of which the first pinned
    run counts, and in the registry at `url`.

    Raises:
        UsageProblem: nothing is called so, or it is no run, and why.
        RegistryError: nothing here is called so, or its run is not here, and the registry does not
            answer.
        ResultsError: it cannot be read.
    """
    try:
        return NamedRun(run=read_run(text, results_dir=results_dir, here=here))
    except UsageProblem as problem:
        if not text or os.sep in text or text.endswith(".json") or (here / text).exists():
            raise
        return _elsewhere(text, problem, url, results_dir, here)


def _elsewhere(
    text: str, problem: UsageProblem, url: str, results_dir: Path, here: Path
) -> NamedRun:
    from gpubench_plugin.compare.baselines.resolve import reference

    found = reference(
        text, settings_url=url, results_dir=results_dir, here=here, benchmarks=frozenset()
    )
    kind = RegistryError if found.unanswered else UsageProblem
    if found.kind == "missing":
        raise kind("; ".join((str(problem), *found.notes))) from None
    if not found.runs:
        raise kind(f"baseline {text!r}: {'; '.join(found.notes)}")
    first = found.runs[0]
    label = text if found.kind == "single" else f"{text} ({first.run_id})"
    return NamedRun(run=replace(first, label=label), notes=tuple(_notes(found, first)))


def _notes(found: Reference, first: Run) -> Iterator[str]:
    """What the baseline has to say, and that not the run stands for it that should."""
    yield from (f"baseline {found.label!r}: {note}" for note in found.notes)
    if found.pinned and min(found.pinned) != first.run_id:
        yield f"baseline {found.label!r}: {first.run_id} stands in for {min(found.pinned)}"
