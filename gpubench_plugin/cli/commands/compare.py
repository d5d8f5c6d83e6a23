"""``gpubench compare``: regressions between runs, wherever they were recorded."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from gpubench_plugin.cli.commands._places import add_locations, colored, echo_report, resolver_of
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.compare.comparison import compare_paired, compare_runs
from gpubench_plugin.compare.looks import UNCHANGED_FROM, UNCHANGED_FROM_CHOICES
from gpubench_plugin.compare.policy import Policy
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.config.settings import POLICIES
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import NothingComparable, UsageProblem, invalid_choice
from gpubench_plugin.core.format import counted
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import COMPARED, Comparison, Verdict
from gpubench_plugin.reports.formats.base import Page

_METRIC_LIMIT: Final = re.compile(r"\s*(?P<metric>[^\s<>=%]+)\s*=\s*(?P<limit>.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits given with ``--limit``; `default_limit` is that of other judged metrics, or empty."""

    by_metric: Mapping[str, str] = field(default_factory=dict)
    default_limit: str = ""

    @classmethod
    def parse(cls, texts: Sequence[str]) -> LimitOptions:
        """Parse ``--limit`` options; the last one for a metric wins.

        Raises:
            UsageProblem: one is not a limit, or an absolute bound without a metric.
        """
        by_metric, default_limit = {}, ""
        for text in texts:
            if match := _METRIC_LIMIT.fullmatch(text):
                metric = match["metric"]
                by_metric[metric] = Limit.parse(match["limit"], f"--limit={metric}").text
                continue
            limit = Limit.parse(text, "--limit")
            if limit.kind != "relative":
                raise UsageProblem(
                    f"--limit: {text!r} is an absolute bound and needs a metric: "
                    f"--limit='step_time_s={limit.text}'"
                )
            default_limit = limit.text
        return cls(by_metric=by_metric, default_limit=default_limit)

    def check(self, *runs: Run) -> None:
        """Check that the runs have the metrics given.

        Raises:
            UsageProblem: a metric given with ``--limit`` is in none of the runs.
        """
        metrics = dict.fromkeys(
            metric for run in runs for result in run.results.values() for metric in result.metrics
        )
        for metric in self.by_metric:
            if metrics and metric not in metrics:
                raise invalid_choice("--limit", metric, metrics)


class Compare(Command):
    """Compares runs: each with the first in one table, or paired launches with --paired.

    A run is a folder, a run id or id prefix, a summary.json, any pytest-benchmark JSON file,
    or the name of a baseline.
    """

    help: ClassVar[str] = "compare runs: which benchmarks became slower, and how certain that is"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Runs, output format and limits."""
        add = parser.add_argument
        add("runs", nargs="*", metavar="RUN|BASELINE", help="the base run, then runs to compare")
        add("--paired", action="store_true", help="the --base and --head runs are paired launches")
        launches: Any = {"nargs": "+", "action": "extend", "default": [], "metavar": "RUN"}
        add("--base", **launches, help="launches of the base, with --paired")
        add("--head", **launches, help="launches of the head, with --paired")
        add("--allow-doubt", action="store_true", help="judge numbers in doubt, or too wide")
        add("--only-changed", action="store_true", help="omit benchmarks known to be unchanged")
        add_judging(
            parser,
            metavar="[METRIC=]LIMIT",
            help="5%%, samples_per_s=3%%, or a bound such as 'step_time_s=<=0.25'; repeatable",
        )
        add_locations(parser, catalog.choices("formats"))

    def run(self, options: argparse.Namespace) -> int:
        """Print the comparison; exit code 1 for a regression, 3 if nothing was comparable.

        A head that fails where the base was measured, and a limit that could not be checked, count
        as a regression; so does what --gate-missing=fail says.
        """
        _validate(options)
        render = catalog.load("formats", options.format)
        limits = LimitOptions.parse(options.limit)
        compare = _compare_paired if options.paired else _compare_with_first
        missing = options.gate_missing or "pass"
        comparisons = [with_losses(each, missing) for each in compare(options, limits)]
        page = Page(
            only_changed=options.only_changed,
            width=shutil.get_terminal_size().columns,
            color=colored(),
        )
        echo_report(render(comparisons, page))
        return exit_code(comparisons, missing)


def add_judging(parser: argparse.ArgumentParser, **limit: Any) -> None:
    """Add what decides how runs are judged; `limit` are the texts of ``--limit``."""
    add, choices = parser.add_argument, UNCHANGED_FROM_CHOICES
    add("--unchanged-from", type=int, choices=choices, help="pairs for unchanged (default: 10)")
    add("--limit", action="append", default=[], **limit)
    text = "exit code 1 for what only one side has or that is incomparable (default: pass)"
    add("--gate-missing", choices=POLICIES, help=text)
    text = "compare even if machines or settings differ, and report the differences"
    add("--allow-incomparable", action="store_true", help=text)


def _validate(options: argparse.Namespace) -> None:
    if options.paired:
        if options.runs or not options.base or not options.head:
            raise UsageProblem("--paired needs --base and --head with all launches")
    elif options.base or options.head or options.unchanged_from is not None:
        raise UsageProblem(
            "--base, --head and --unchanged-from require --paired; otherwise the first run is the "
            "base"
        )
    elif len(options.runs) < 2:
        raise UsageProblem("give at least two runs: the base first")


def _compare_paired(options: argparse.Namespace, limits: LimitOptions) -> list[Comparison]:
    with resolver_of(options) as resolver:
        launches = [resolver.run(text) for text in (*options.base, *options.head)]
    pairs = len(options.base)
    runs = [launch.run for launch in launches]
    limits.check(*runs)
    bases, heads = runs[:pairs], runs[pairs:]
    for side, keys in (("--base", map(_run_key, bases)), ("--head", map(_run_key, heads))):
        if repeated := [key for key, count in Counter(keys).items() if count > 1]:
            raise UsageProblem(
                f"{side}: {repeated[0]} is given twice: a repeat adds no information"
            )
    comparison = compare_paired(
        bases,
        heads,
        unchanged_from=options.unchanged_from or UNCHANGED_FROM,
        limits=limits.by_metric,
        default_limit=limits.default_limit,
        allow_incomparable=options.allow_incomparable,
    )
    notes = [note for launch in launches for note in launch.notes]
    return [_with_notes(comparison, notes, bases, heads)]


def _run_key(run: Run) -> str:
    return run.run_id or (os.path.realpath(run.path) if run.path else run.label)


def _compare_with_first(options: argparse.Namespace, limits: LimitOptions) -> list[Comparison]:
    """One comparison per head; one of several heads with nothing comparable gets a note instead."""
    with resolver_of(options) as resolver:
        references = [resolver.run(text) for text in options.runs]
    base, *heads = (_identified(reference.run) for reference in references)
    limits.check(base, *heads)
    comparisons: list[Comparison] = []
    for head, reference in zip(heads, references[1:], strict=True):
        try:
            comparison = compare_runs(
                base,
                head,
                limits=limits.by_metric,
                default_limit=limits.default_limit,
                allow_incomparable=options.allow_incomparable,
                allow_doubt=options.allow_doubt,
            )
        except NothingComparable as error:
            if len(heads) == 1:
                raise
            comparison = Comparison(base=base.label, head=head.label, notes=(str(error),))
        notes = [*references[0].notes, *reference.notes]
        comparisons.append(_with_notes(comparison, notes, [base], [head]))
    return comparisons


def _identified(run: Run) -> Run:
    """The run with its id in its label, also where a part of it or ``last`` was given."""
    is_named = not run.run_id or run.run_id in run.label
    return run if is_named else replace(run, label=f"{run.label} ({run.run_id})")


def _with_notes(
    comparison: Comparison, notes: Sequence[str], bases: Sequence[Run], heads: Sequence[Run]
) -> Comparison:
    """`comparison` with notes on its runs placed before its own."""
    base_keys = {_run_key(run) for run in bases}
    all_notes = [
        *notes,
        *(
            f"{run.label} was interrupted or is still being written: only its completed benchmarks "
            "are compared"
            for run in (*bases, *heads)
            if run.status == "interrupted"
        ),
        *(f"{run.label} is compared with itself" for run in heads if _run_key(run) in base_keys),
        *comparison.notes,
    ]
    return replace(comparison, notes=tuple(dict.fromkeys(all_notes)))


def _failing(comparison: Comparison, missing: str) -> list[Verdict]:
    """Verdicts with exit code 1; where nothing is comparable, another one says that."""
    policy = Policy(comparison=comparison, missing=missing)
    hidden = "incomparable" if comparison.all_incomparable else ""
    return [
        v
        for v in comparison.verdicts
        if v.kind != hidden
        and (policy.fails(v) or (v.kind == "errored" and v.id in comparison.measured))
    ]


def with_losses(comparison: Comparison, missing: str) -> Comparison:
    """Add notes on lost benchmarks, which count as a regression, and on missing ones that do."""
    failing = _failing(comparison, missing)
    limits = sum(v.is_unchecked for v in failing)
    failed = sum(v.kind == "errored" and not v.metric for v in failing)
    parts = [
        f"{counted(failed, 'benchmark')} failed that the base measured" * bool(failed),
        f"{counted(limits, 'limit')} could not be checked" * bool(limits),
    ]
    note = f"{' and '.join(filter(None, parts))}: counts as a regression (exit code 1)"
    policy = Policy(comparison=comparison, missing=missing, inconclusive="")
    undecided = policy.undecided_notes() if missing == "fail" else ()
    notes = (*undecided, *[note] * bool(limits + failed))
    return replace(comparison, notes=(*comparison.notes, *notes))


def exit_code(comparisons: Sequence[Comparison], missing: str = "pass") -> ExitCode:
    """Exit code: a regression wins; a head with nothing comparable is an error.

    It is none if the head has new benchmarks and shares no others with the base.
    """
    if any(_failing(comparison, missing) for comparison in comparisons):
        return ExitCode.REGRESSION
    for comparison in comparisons:
        kinds = {verdict.kind for verdict in comparison.verdicts}
        is_first = "new" in kinds and kinds.isdisjoint({"incomparable", "no_baseline"})
        if comparison.all_incomparable or not (is_first or kinds & COMPARED):
            return ExitCode.NOTHING_COMPARABLE
    return ExitCode.OK
