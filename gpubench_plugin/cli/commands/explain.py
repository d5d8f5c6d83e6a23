"""``gpubench explain``: why a benchmark has its verdict, or what its number rests on."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    Places,
    add_format,
    add_places,
    colored,
    columns,
    glyphs,
    say,
    say_json,
)
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.errors import BrokenFile, UsageProblem
from gpubench_plugin.reports import (
    Explanation,
    explanation_as_json,
    explanation_lines,
    painted,
    plain,
)

if TYPE_CHECKING:
    import argparse

    from gpubench_plugin.results import RunDirectory

_LATEST: Final = "last"


class Explain(Command):
    """Why a benchmark has its verdict in a comparison of 'gpubench ab' or in a run.

    It shows the launches or runs in the order of time, their flags, each look, whose limit it was,
    and what would decide. Of a run that was judged by nothing it shows what the number rests on.
    """

    help: ClassVar[str] = "show why a benchmark has its verdict, or what its number rests on"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which comparison or run, and which benchmark."""
        parser.add_argument(
            "subject",
            metavar="RUN|COMPARISON",
            help="folder or id of a run or of a comparison of gpubench ab; last: the latest",
        )
        parser.add_argument("benchmark", metavar="BENCHMARK", help="a node id, or a part of one")
        add_format(parser, ("text", "json"), default="text")
        add_places(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print it."""
        about = _explained(options.subject, options.benchmark, Places.of(options))
        if options.format == "json":
            say_json(explanation_as_json(about))
        else:
            written = painted if colored(os.environ, terminal=sys.stdout.isatty()) else plain
            say(map(written, explanation_lines(about, columns(), glyphs())))
        return Exit.FINE


def _explained(text: str, benchmark: str, places: Places) -> Explanation:
    """What there is to say of the benchmark in what `text` names.

    Raises:
        UsageProblem: nothing, or several things, are called so, or no benchmark, or several.
        ResultsError: a file cannot be read.
    """
    from gpubench_plugin.cli.explain import explained_comparison

    if not text:
        raise UsageProblem("RUN|COMPARISON: empty; allowed: a folder, an id, or last")
    comparison = _comparison(text, places)
    if comparison is not None:
        if comparison.is_relative_to(places.here):  # as one would type it
            comparison = comparison.relative_to(places.here)
        return explained_comparison(comparison, benchmark)
    if text == _LATEST and not (text := _latest_run(places)):
        raise UsageProblem(f"last: there is no run and no comparison in {places.results_dir} yet")
    return _explained_run(text, benchmark, places)


def _comparison(text: str, places: Places) -> Path | None:
    """The folder of the comparison that `text` names; None where it names none."""
    known = _comparisons(places)
    if text == _LATEST:
        return known[-1] if known and known[-1].name > _latest_run(places) else None
    listed = (places.here / text, places.results_dir / text, places.results_dir / "ab" / text)
    if (folder := next(filter(_is_comparison, listed), None)) is not None:
        return folder
    named = [folder for folder in known if folder.name.startswith(text)]
    runs = [run.run_id for run in _runs(places) if run.run_id.startswith(text)]
    if named and len(named) + len(runs) > 1:
        names = [*(folder.name for folder in named), *runs]
        raise UsageProblem(
            f"{len(names)} runs and comparisons begin with {text!r}: {', '.join(names[-_SHOWN:])}"
        )
    return named[0] if named else None


_SHOWN: Final = 5
"""Names that a message lists."""


def _comparisons(places: Places) -> list[Path]:
    """The folders of all comparisons, the oldest first."""
    folders = (places.results_dir / "ab").glob("*/")
    return sorted((one for one in folders if _is_comparison(one)), key=lambda one: one.name)


def _is_comparison(folder: Path) -> bool:
    from gpubench_plugin.cli.ab import STATE

    with suppress(OSError, ValueError):  # a name too long, a folder that is closed
        return (folder / STATE).is_file()
    return False


def _runs(places: Places) -> list[RunDirectory]:
    from gpubench_plugin.results import runs_in

    return runs_in(places.results_dir)


def _latest_run(places: Places) -> str:
    return max((run.run_id for run in _runs(places)), default="")


def _directory(text: str, places: Places) -> RunDirectory:
    """The folder of the run that `text` names; a problem also names the latest comparisons."""
    from gpubench_plugin.results import find_run

    try:
        return find_run(places.results_dir, text, here=places.here)
    except UsageProblem as problem:
        names = [folder.name for folder in reversed(_comparisons(places))][:_SHOWN]
        if not names or os.sep in text:
            raise
        raise UsageProblem(f"{problem}; the latest comparisons: {', '.join(names)}") from None


def _explained_run(text: str, benchmark: str, places: Places) -> Explanation:
    from gpubench_plugin.cli.explain import explained_measurement, explained_run
    from gpubench_plugin.compare.baselines import the_benchmark
    from gpubench_plugin.results import StoredRun, verdicts

    directory = _directory(text, places)
    stored = StoredRun(directory)
    run = stored.run()
    name = the_benchmark(benchmark, run.results, f"the run {run.run_id}")
    document = verdicts.read(directory.verdicts) if directory.verdicts.is_file() else None
    if document is not None and any(one.metric for one in document.verdicts_on(name)):
        with places.resolver() as resolver:
            return explained_run(run, document, name, resolver=resolver, glyphs=glyphs())
    measurement = next((one for one in stored.record().benchmarks if one.id == name), None)
    if measurement is None:
        raise BrokenFile(f"{directory.config_resolved} has no configuration of {name}")
    return explained_measurement(run.run_id, measurement, document, glyphs=glyphs())
