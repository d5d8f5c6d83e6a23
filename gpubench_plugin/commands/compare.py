"""``gpubench compare``: what became slower between runs, wherever they were recorded."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, cast

from gpubench_plugin import catalog
from gpubench_plugin.commands.base import Command, Exit
from gpubench_plugin.errors import NothingComparable, UsageProblem, not_one_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.judging.limit_options import LimitOptions
    from gpubench_plugin.reports.formats.base import Format
    from gpubench_plugin.runs import Run
    from gpubench_plugin.verdicts import Comparison, VerdictKind

_COMPARED: Final[frozenset[VerdictKind]] = frozenset(
    {"improved", "unchanged", "regressed", "inconclusive"}
)
"""Verdicts for which two numbers were held against each other."""


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
        parser.add_argument("--base", nargs="+", default=[], metavar="RUN", help="with --paired")
        parser.add_argument("--head", nargs="+", default=[], metavar="RUN", help="with --paired")
        parser.add_argument(
            "--format", default="table", help=f"one of {', '.join(catalog.choices('formats'))}"
        )
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
        parser.add_argument(
            "--results-dir", default="results", metavar="DIR", help="where runs are looked up"
        )
        parser.add_argument(
            "--registry",
            default="",
            metavar="URL",
            help="the database in which a run or baseline is looked up that is not here (default: "
            "GPUBENCH_REGISTRY, else registry.sqlite in the results folder); 'none' for none",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Print the comparison; 1 for a regression, 3 where nothing could be compared."""
        from gpubench_plugin.judging.limit_options import LimitOptions

        _check(options)
        form = cast("Format", catalog.load("formats", options.format)())
        limits = LimitOptions.parse(options.limit)
        if options.paired:
            comparisons = [_paired(options, limits)]
        else:
            comparisons = _each_with_the_first(options, limits)
        _print(form, comparisons, only_changed=options.only_changed)
        return _exit(comparisons)


def _check(options: argparse.Namespace) -> None:
    formats = catalog.choices("formats")
    if options.format not in formats:
        raise not_one_of("--format", options.format, formats)
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
    elif options.base or options.head:
        raise UsageProblem("--base and --head are for --paired; else the first run is the base")
    elif len(options.runs) < 2:
        raise UsageProblem("give at least two runs: the base first, then what to compare with it")


def _paired(options: argparse.Namespace, limits: LimitOptions) -> Comparison:
    from gpubench_plugin.compare.comparison import compare_paired

    bases = [_read(text, options) for text in options.base]
    heads = limits.applied([_read(text, options) for text in options.head], bases)
    found = compare_paired(
        bases,
        heads,
        limits=limits.by_metric,
        allow_incomparable=options.allow_incomparable,
    )
    return replace(found, notes=(*_interrupted(*bases, *heads), *found.notes))


def _each_with_the_first(options: argparse.Namespace, limits: LimitOptions) -> list[Comparison]:
    """One comparison per head; a head with which nothing can be compared has a note instead.

    Raises:
        NothingComparable: there is no other head.
    """
    from gpubench_plugin.compare.comparison import compare_runs
    from gpubench_plugin.verdicts import Comparison

    base, *heads = (_read(text, options) for text in options.runs)
    comparisons = []
    for head in limits.applied(heads, [base]):
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
        comparisons.append(replace(found, notes=(*_interrupted(base, head), *found.notes)))
    return comparisons


def _read(text: str, options: argparse.Namespace) -> Run:
    from gpubench_plugin.judging.named_run import named_run

    return named_run(
        text,
        url=options.registry or os.environ.get("GPUBENCH_REGISTRY", ""),
        results_dir=Path(options.results_dir),
        here=Path.cwd(),
    )


def _interrupted(*runs: Run) -> list[str]:
    return [
        f"{run.label} was interrupted or is still being written: what it has is compared"
        for run in runs
        if run.status == "interrupted"
    ]


def _print(form: Format, comparisons: Sequence[Comparison], *, only_changed: bool) -> None:
    from gpubench_plugin.reports.glyphs import glyphs_for

    encoding = sys.stdout.encoding or "ascii"
    text = form.render(
        comparisons,
        only_changed=only_changed,
        width=shutil.get_terminal_size((80, 24)).columns,
        color=_colored(os.environ, terminal=sys.stdout.isatty()),
        glyphs=glyphs_for(encoding),
    )
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # ``| head``: the verdict stays the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _colored(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """As https://no-color.org has it."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _exit(comparisons: Sequence[Comparison]) -> Exit:
    """A regression counts most; a head with which nothing could be compared is not fine."""
    if any(comparison.count("regressed") for comparison in comparisons):
        return Exit.REGRESSION
    if all(any(v.kind in _COMPARED for v in c.verdicts) for c in comparisons):
        return Exit.FINE
    return Exit.NOTHING_COMPARABLE
