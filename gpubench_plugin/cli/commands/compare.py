"""``gpubench compare``: what became slower between runs, wherever they were recorded."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

from gpubench_plugin import catalog
from gpubench_plugin.cli.commands._places import (
    Places,
    add_format,
    add_places,
    colored,
    glyphs,
    say_text,
)
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.compare import UNCHANGED_FROM, UNCHANGED_FROM_CHOICES, gated, rate_of
from gpubench_plugin.config import Limit
from gpubench_plugin.environment import counted
from gpubench_plugin.errors import NothingComparable, UsageProblem, not_one_of
from gpubench_plugin.records import COMPARED, Comparison, Result, Run, Verdict
from gpubench_plugin.reports.formats import Format, Page

_OF_A_METRIC: Final = re.compile(r"\s*(?P<metric>[^\s<>=%]+)\s*=\s*(?P<limit>.*)", re.DOTALL)

_BOUND: Final = re.compile(r"\s*(?P<metric>[^\s<>=%]+)\s*(?P<limit>[<>]=.*)", re.DOTALL)
"""A fixed bound as a formula would have it, without the sign of equality behind the metric."""


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The limits given by ``--limit``: of single metrics, or of all that are judged.

    `by_metric` holds those of single metrics, `general` that of all others, or nothing.
    """

    by_metric: Mapping[str, str] = field(default_factory=dict)
    general: str = ""

    @classmethod
    def parse(cls, texts: Sequence[str]) -> LimitOptions:
        """What the options say; of two for the same metric the last one counts.

        Raises:
            UsageProblem: one is no limit, or a fixed bound that does not say of which metric.
        """
        by_metric, general = {}, ""
        for text in texts:
            match = _OF_A_METRIC.fullmatch(text)
            if match:
                metric = match["metric"]
                by_metric[metric] = Limit.parse(match["limit"], f"--limit={metric}").text
                continue
            if bound := _BOUND.fullmatch(text):
                meant = f"{bound['metric']}={bound['limit'].strip()}"
                raise UsageProblem(
                    f"--limit: {text!r} is no limit (did you mean --limit={meant!r}?)"
                )
            limit = Limit.parse(text, "--limit")
            if limit.kind != "relative":
                raise UsageProblem(
                    f"--limit: {text!r} is a fixed bound; say of which metric: "
                    f"--limit='step_time_s={limit.text}'"
                )
            general = limit.text
        return cls(by_metric=by_metric, general=general)

    def applied(self, *runs: Run) -> list[Run]:
        """The `runs` with the general limit as the limit of each metric that would be judged.

        Raises:
            UsageProblem: no benchmark of any of the runs has a metric that is named.
        """
        known = dict.fromkeys(
            metric for run in runs for result in run.results.values() for metric in result.metrics
        )
        for metric in self.by_metric:
            if known and metric not in known:
                raise not_one_of("--limit", metric, known)
        return [self._general(run) for run in runs] if self.general else list(runs)

    def _general(self, run: Run) -> Run:
        results = {
            name: replace(result, limits=self._of(result)) for name, result in run.results.items()
        }
        return replace(run, results=results)

    def _of(self, result: Result) -> dict[str, str]:
        """Of all that is judged but the total rate, which follows the limit of the step time."""
        metrics = result.metrics.keys()
        rates = {rate_of(metrics), rate_of(metrics - result.limits.keys())}
        return dict.fromkeys((name for name in gated(result) if name not in rates), self.general)


Compared: TypeAlias = "tuple[Comparison, Collection[str]]"
"""What was found of one head, and the benchmarks that its base has measured."""


class Compare(Command):
    """Compare runs: each with the first, or launches in pairs with --paired.

    A run is a folder, a run id or its beginning, a summary.json, any JSON file of pytest-benchmark,
    or the name of a baseline.
    """

    help: ClassVar[str] = "compare runs: what became slower, by how much, and is that known"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The runs, what is shown and how it is judged."""
        parser.add_argument("runs", nargs="*", metavar="RUN", help="the base, then what to compare")
        parser.add_argument(
            "--paired",
            action="store_true",
            help="each file of --base and --head is one launch, paired in the given order",
        )
        for side in ("--base", "--head"):  # may be given again and again
            parser.add_argument(
                side, nargs="+", action="extend", default=[], metavar="RUN", help="with --paired"
            )
        parser.add_argument(
            "--unchanged-from",
            metavar="PAIRS",
            type=int,
            choices=UNCHANGED_FROM_CHOICES,
            help="with --paired: nothing is unchanged by fewer; 5, 10 (default) or 15",
        )
        add_format(parser, catalog.choices("formats"))
        parser.add_argument(
            "--only-changed", action="store_true", help="leave out what is known to be unchanged"
        )
        parser.add_argument(
            "--limit",
            action="append",
            default=[],
            metavar="[METRIC=]LIMIT",
            help="how much worse is a regression: 5%%, samples_per_s=3%%, or a fixed bound such "
            "as 'step_time_s=<=0.25'; repeatable",
        )
        parser.add_argument(
            "--allow-incomparable",
            action="store_true",
            help="compare what was measured on other machines or with other settings",
        )
        add_places(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print the comparison; 1 for a regression, 3 where nothing could be compared.

        A head that fails where the base was measured, and a limit that nobody could check, count
        as a regression.
        """
        _check(options)
        form = catalog.load("formats", options.format)
        limits = LimitOptions.parse(options.limit)
        if options.paired:
            found: Sequence[Compared] = [_paired(options, limits)]
        else:
            found = _each_with_the_first(options, limits)
        comparisons = [_with_losses(comparison, worked) for comparison, worked in found]
        _print(form, comparisons, only_changed=options.only_changed)
        return _exit(found)


def _check(options: argparse.Namespace) -> None:
    if options.paired:
        if options.runs:
            raise UsageProblem(
                f"--paired: {options.runs[0]!r} is of neither side; give the launches with --base "
                "and --head"
            )
        if not options.base or not options.head:
            raise UsageProblem("--paired needs --base and --head, each with its launches")
        if len(options.base) != len(options.head):
            raise UsageProblem(
                f"--paired: {len(options.base)} launches of the base and {len(options.head)} of "
                "the head; give as many of each, in the order of the pairs"
            )
    elif options.unchanged_from is not None:
        raise UsageProblem(f"--unchanged-from={options.unchanged_from}: it is for --paired")
    elif options.base or options.head:
        raise UsageProblem("--base and --head are for --paired; else the first run is the base")
    elif len(options.runs) < 2:
        raise UsageProblem("give at least two runs: the base first, then what to compare with it")


def _paired(options: argparse.Namespace, limits: LimitOptions) -> Compared:
    from gpubench_plugin.compare import compare_paired

    with Places.of(options).resolver() as resolver:
        named = [resolver.run(text) for text in (*options.base, *options.head)]
    pairs = len(options.base)
    _refuse_twice("--base", [one.run for one in named[:pairs]])
    _refuse_twice("--head", [one.run for one in named[pairs:]])
    runs = limits.applied(*(one.run for one in named))
    bases, heads = runs[:pairs], runs[pairs:]
    found = compare_paired(
        bases,
        heads,
        unchanged_from=options.unchanged_from or UNCHANGED_FROM,
        limits=limits.by_metric,
        allow_incomparable=options.allow_incomparable,
    )
    notes = [note for one in named for note in one.notes]
    return _noted(found, notes, bases, heads), _measured(bases)


def _refuse_twice(side: str, runs: Sequence[Run]) -> None:
    """One launch given five times would pass for five, with no noise between them."""
    seen: dict[str, Run] = {}
    for run in runs:
        first = seen.setdefault(_identity(run), run)
        if first is not run:
            names = f"{first.label!r} and {run.label!r}"
            raise UsageProblem(
                f"--paired: {names} of {side} are one run; give each launch once: the same one "
                "again tells nothing new"
            )


def _identity(run: Run) -> str:
    return run.run_id or (os.path.realpath(run.path) if run.path else run.label)


def _each_with_the_first(options: argparse.Namespace, limits: LimitOptions) -> Sequence[Compared]:
    """One comparison per head; a head with which nothing can be compared has a note instead.

    Raises:
        NothingComparable: there is no other head.
    """
    from gpubench_plugin.compare import compare_runs

    with Places.of(options).resolver() as resolver:
        named = [resolver.run(text) for text in options.runs]
    base, *heads = limits.applied(*(one.run for one in named))
    comparisons = []
    for head, of_head in zip(heads, named[1:], strict=True):
        try:
            found = compare_runs(
                base,
                head,
                limits=limits.by_metric,
                allow_incomparable=options.allow_incomparable,
            )
        except NothingComparable as error:
            if len(heads) == 1:
                raise
            found = Comparison(base=base.label, head=head.label, notes=(str(error),))
        notes = [*named[0].notes, *of_head.notes]
        comparisons.append((_noted(found, notes, [base], [head]), _measured([base])))
    return comparisons


def _noted(
    found: Comparison, notes: Sequence[str], bases: Sequence[Run], heads: Sequence[Run]
) -> Comparison:
    """`found` with what there is to say of its runs above what it says itself."""
    own = {_identity(run) for run in bases}
    same = (f"{run.label} is compared with itself" for run in heads if _identity(run) in own)
    interrupted = (
        f"{run.label} was interrupted or is still being written: what it has is compared"
        for run in (*bases, *heads)
        if run.status == "interrupted"
    )
    return replace(found, notes=tuple(dict.fromkeys((*notes, *interrupted, *same, *found.notes))))


def _measured(runs: Sequence[Run]) -> frozenset[str]:
    """The benchmarks that one of the `runs` has measured."""
    return frozenset(
        name for run in runs for name, result in run.results.items() if result.outcome == "measured"
    )


def _print(form: Format, comparisons: Sequence[Comparison], *, only_changed: bool) -> None:
    page = Page(
        only_changed=only_changed,
        width=shutil.get_terminal_size((80, 24)).columns,
        color=colored(os.environ, terminal=sys.stdout.isatty()),
        glyphs=glyphs(),
    )
    try:
        say_text(form(comparisons, page))
        sys.stdout.flush()
    except BrokenPipeError:  # ``| head``: the verdict stays the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lost(verdict: Verdict, worked: Collection[str]) -> bool:
    """Whether it no longer works, of what the base had measured, or its limit was not checked."""
    return verdict.unchecked or (verdict.kind == "errored" and verdict.id in worked)


def _with_losses(comparison: Comparison, worked: Collection[str]) -> Comparison:
    """With a note that what was lost counts as a regression."""
    lost = [verdict for verdict in comparison.verdicts if _lost(verdict, worked)]
    if not lost:
        return comparison
    limits = sum(bool(verdict.metric) for verdict in lost)
    failed = len(lost) - limits
    said = [
        f"{counted(failed, 'benchmark')} failed that the base has measured" * bool(failed),
        f"{counted(limits, 'limit')} could not be checked" * bool(limits),
    ]
    note = f"{' and '.join(filter(None, said))}: counts as a regression (exit code 1)"
    return replace(comparison, notes=(*comparison.notes, note))


def _exit(found: Sequence[Compared]) -> Exit:
    """A regression counts most; a head with which nothing could be compared is not fine."""
    verdicts = [(verdict, worked) for one, worked in found for verdict in one.verdicts]
    if any(verdict.kind == "regressed" or _lost(verdict, worked) for verdict, worked in verdicts):
        return Exit.REGRESSION
    fine = all(
        any(verdict.kind in COMPARED for verdict in one.verdicts) and not one.all_incomparable
        for one, _ in found
    )
    return Exit.FINE if fine else Exit.NOTHING_COMPARABLE
