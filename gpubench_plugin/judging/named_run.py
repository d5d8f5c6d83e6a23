"""One run by whatever names it: a path, an id, or a baseline; here or in the registry."""

from __future__ import annotations

import os
from pathlib import Path

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.results.sources import read_run
from gpubench_plugin.runs import Run


def named_run(text: str, *, url: str, results_dir: Path, here: Path) -> Run:
    """The run that `text` names; its label is `text`.

    What is no path and no run here is looked for among the baselines, of which the first pinned
    run counts, and in the registry at `url`.

    Raises:
        UsageProblem: nothing is called so, or it is no run, and why.
        ResultsError: it cannot be read.
    """
    try:
        return read_run(text, results_dir=results_dir, here=here)
    except UsageProblem as problem:
        if not text or os.sep in text or text.endswith(".json") or (here / text).exists():
            raise
        return _elsewhere(text, problem, url, results_dir, here)


def _elsewhere(text: str, problem: UsageProblem, url: str, results_dir: Path, here: Path) -> Run:
    from dataclasses import replace

    from gpubench_plugin.judging.reference import reference

    found = reference(
        text, settings_url=url, results_dir=results_dir, here=here, benchmarks=frozenset()
    )
    if found.kind == "missing":
        raise UsageProblem("; ".join((str(problem), *found.notes))) from None
    if not found.runs:
        raise UsageProblem(f"baseline {text!r}: {'; '.join(found.notes)}")
    first = found.runs[0]
    label = text if found.kind == "single" else f"{text} ({first.run_id})"
    return replace(first, label=label)
