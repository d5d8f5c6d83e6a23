"""``gpubench explain``: why a benchmark has its verdict, or how its value was measured."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    Locations,
    add_format,
    add_locations,
    colored,
    echo,
    glyphs,
    output_width,
    say_json,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
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
    """Explains a benchmark's verdict in a comparison of 'gpubench ab' or in a run.

    It shows the launches or runs in the order of time, their flags, each look, whose limit it was,
    and what would decide. Of a run that was judged by nothing it shows what the number rests on.
    """

    help: ClassVar[str] = "explain a benchmark's verdict, or how its value was measured"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Comparison or run, and benchmark."""
        parser.add_argument(
            "subject",
            metavar="RUN|COMPARISON",
            help="folder or id of a run or of a gpubench ab comparison; last: the latest",
        )
        parser.add_argument("benchmark", metavar="BENCHMARK", help="node id, or a substring of one")
        add_format(parser, ("text", "json"), default="text")
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print the explanation."""
        explanation = _explanation(options.subject, options.benchmark, Locations.of(options))
        if options.format == "json":
            say_json(explanation_as_json(explanation))
        else:
            render = painted if colored(os.environ, terminal=sys.stdout.isatty()) else plain
            echo(map(render, explanation_lines(explanation, output_width(), glyphs())))
        return ExitCode.OK


def _explanation(text: str, benchmark: str, paths: Locations) -> Explanation:
    """Build the explanation of the benchmark in what `text` names.

    Raises:
        UsageProblem: nothing, or several things, are called so, or no benchmark, or several.
        ResultsError: a file cannot be read.
    """
    from gpubench_plugin.cli.explain import explain_comparison

    if not text:
        raise UsageProblem("RUN|COMPARISON: empty; allowed: a folder, an id, or last")
    comparison = _comparison(text, paths)
    if comparison is not None:
        if comparison.is_relative_to(paths.cwd):  # as one would type it
            comparison = comparison.relative_to(paths.cwd)
        return explain_comparison(comparison, benchmark)
    if text == _LATEST and not (text := _latest_run(paths)):
        raise UsageProblem(f"last: {paths.results_dir} contains no run and no comparison yet")
    return _explained_run(text, benchmark, paths)


def _comparison(text: str, paths: Locations) -> Path | None:
    """Folder of the comparison named by `text`; None if there is none."""
    comparisons = _comparisons(paths)
    if text == _LATEST:
        return (
            comparisons[-1] if comparisons and comparisons[-1].name > _latest_run(paths) else None
        )
    candidates = (paths.cwd / text, paths.results_dir / text, paths.results_dir / "ab" / text)
    if (folder := next(filter(_is_comparison, candidates), None)) is not None:
        return folder
    matches = [folder for folder in comparisons if folder.name.startswith(text)]
    runs = [run.run_id for run in _runs(paths) if run.run_id.startswith(text)]
    if matches and len(matches) + len(runs) > 1:
        names = [*(folder.name for folder in matches), *runs]
        raise UsageProblem(
            f"{len(names)} runs and comparisons start with {text!r}: {', '.join(names[-_SHOWN:])}"
        )
    return matches[0] if matches else None


_SHOWN: Final = 5
"""Names that a message lists."""


def _comparisons(paths: Locations) -> list[Path]:
    """Folders of all comparisons, oldest first."""
    folders = (paths.results_dir / "ab").glob("*/")
    return sorted(
        (folder for folder in folders if _is_comparison(folder)), key=lambda folder: folder.name
    )


def _is_comparison(folder: Path) -> bool:
    from gpubench_plugin.cli.ab import STATE

    with suppress(OSError, ValueError):  # a name too long, a folder that is closed
        return (folder / STATE).is_file()
    return False


def _runs(paths: Locations) -> list[RunDirectory]:
    from gpubench_plugin.results import runs_in

    return runs_in(paths.results_dir)


def _latest_run(paths: Locations) -> str:
    return max((run.run_id for run in _runs(paths)), default="")


def _directory(text: str, paths: Locations) -> RunDirectory:
    """Resolve `text` to a run directory; the error also lists the latest comparisons."""
    from gpubench_plugin.results import find_run

    try:
        return find_run(paths.results_dir, text, cwd=paths.cwd)
    except UsageProblem as error:
        names = [folder.name for folder in reversed(_comparisons(paths))][:_SHOWN]
        if not names or os.sep in text:
            raise
        raise UsageProblem(f"{error}; the latest comparisons: {', '.join(names)}") from None


def _explained_run(text: str, benchmark: str, paths: Locations) -> Explanation:
    from gpubench_plugin.cli.explain import explain_measurement, explain_run
    from gpubench_plugin.compare.baselines import the_benchmark
    from gpubench_plugin.results import StoredRun, verdicts

    directory = _directory(text, paths)
    stored = StoredRun(directory)
    run = stored.run()
    name = the_benchmark(benchmark, run.results, f"the run {run.run_id}")
    document = verdicts.read(directory.verdicts) if directory.verdicts.is_file() else None
    if document is not None and any(entry.metric for entry in document.for_benchmark(name)):
        with paths.resolver() as resolver:
            return explain_run(run, document, name, resolver=resolver, glyphs=glyphs())
    measurement = next((entry for entry in stored.record().benchmarks if entry.id == name), None)
    if measurement is None:
        raise BrokenFile(f"{directory.config_resolved} has no configuration for {name}")
    return explain_measurement(run.run_id, measurement, document, glyphs=glyphs())
