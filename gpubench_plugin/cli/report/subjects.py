"""What a report is about: a run, a run against another, or the pairs of ``gpubench ab``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.cli.explain.comparison import ExplainedComparison
from gpubench_plugin.cli.explain.judged import judged_explanation
from gpubench_plugin.cli.explain.measurement import explain_measurement
from gpubench_plugin.cli.explain.run import explain_run
from gpubench_plugin.cli.report.sides import Side
from gpubench_plugin.compare.effective_limits import SIDES, SideName
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.reports.explanation import Explanation, Role
from gpubench_plugin.results import verdicts


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A run, the `head`, alone or compared.

    `base` is None where it was judged by earlier runs. `explain` is of a benchmark. The numbers of
    `is_paired` launches are in the verdicts.
    """

    title: str
    head: Side
    base: Side | None = None
    comparison: Comparison | None = None
    explain: Callable[[str], Explanation]
    command: str = ""
    is_paired: bool = False

    @property
    def sides(self) -> dict[SideName, Side]:
        """The base, if there is one, and the head."""
        return {"base": self.base, "head": self.head} if self.base else {"head": self.head}


def subject_of_run(run: Run, resolver: Resolver) -> Subject:
    """The `run` alone, with the verdicts of its own gate, if it had one."""
    head = Side.of(run)
    files = [reader.directory.verdicts for reader in head.readers]
    document = next((verdicts.read(file) for file in files if file.is_file()), None)

    def explain(name: str) -> Explanation:
        judged = document.for_benchmark(name) if document else ()
        if (measurement := head.measurement(name)) is None:  # the baseline's alone
            about = f"run {run.run_id or run.label}: without this benchmark"
            return Explanation(benchmark=name, subject=about, noun="run", verdicts=judged)
        if document and any(verdict.metric for verdict in judged):
            return explain_run(run, document, name, resolver=resolver)
        return explain_measurement(run.run_id or run.label, measurement, document)

    return Subject(
        title=run.run_id or run.label,
        head=head,
        comparison=document.comparison if document else None,
        explain=explain,
        command=shlex.join(["pytest", *head.command]) if head.command else "",
    )


def subject_of_runs(base: Run, head: Run, comparison: Comparison) -> Subject:
    """Two runs and their `comparison`."""

    def explain(name: str) -> Explanation:
        sides: dict[Role, Run] = {"base": base, "head": head}
        results = {role: run.results.get(name) for role, run in sides.items()}
        measured = [
            (sides[role].label, role, result, 0)
            for role, result in results.items()
            if result and result.outcome == "measured"
        ]
        return judged_explanation(
            [verdict for verdict in comparison.verdicts if verdict.id == name],
            measured,
            stated={str(role): r.limits if r else {} for role, r in results.items()},
            benchmark=name,
            subject=f"base {base.label}, head {head.label}",
            noun="run",
        )

    return Subject(
        title=f"{head.label} against {base.label}",
        head=Side.of(head),
        base=Side.of(base),
        comparison=comparison,
        explain=explain,
        command=shlex.join(["gpubench", "compare", base.label, head.label]),
    )


def subject_of_comparison(folder: Path) -> Subject:
    """The comparison of ``gpubench ab`` in `folder`, also an unfinished one."""
    explained = ExplainedComparison(folder)
    launches = explained.launches
    base, head = (Side.of(launches.warmup[side], *launches.runs[side]) for side in SIDES)
    compared = explained.comparison
    return Subject(
        title=f"{compared.head} against {compared.base}",
        head=head,
        base=base,
        comparison=compared,
        explain=explained.explanation,
        command=explained.command,
        is_paired=True,
    )
