"""``gpubench report``: a page of a run or a comparison, in one file or as a site."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.cli.ab.saved_state import find_comparison
from gpubench_plugin.cli.commands._places import add_last, add_locations, resolver_of, show, warn
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core.errors import NothingComparable, UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.core.verdicts import LAST, Comparison
from gpubench_plugin.results.run_directory import writable_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpubench_plugin.baselines.resolve import Resolver
    from gpubench_plugin.cli.report.subjects import Subject


class Report(Command):
    """Writes one HTML file that needs no network: table, histories, pictures, configuration.

    Of a run, of two runs, or of a comparison of 'gpubench ab'. With --site, pages of all runs and
    comparisons, for any web server; those that are up to date stay.
    """

    help: ClassVar[str] = "write a run, two runs or a comparison as one HTML file, or a site"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Subject, file or folder, details, and what is left out."""
        add = parser.add_argument
        text = "a run, the base and the head, or a comparison of gpubench ab (default: last)"
        add("subject", nargs="*", metavar="RUN|COMPARISON", help=text)
        add("-o", "--output", metavar="FILE", help="default: report.html")
        add("--site", metavar="DIR", help="write pages of all runs and comparisons to this folder")
        text = "also the details of benchmarks that match NAME, not just the worst 50; repeatable"
        add("--detail", metavar="NAME", action="append", default=[], help=text)
        text = "without hosts, paths, commands, and facts that comparisons do not need"
        add("--public", action="store_true", help=text)
        add_last(parser, default=60)
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Write the file or the site, and print where it is."""
        resolver = resolver_of(options)
        if options.site is not None:
            if options.subject or options.output or options.detail:
                raise UsageProblem(
                    f"--site={options.site}: has all runs; allowed beside it: --public, --last, "
                    "--results-dir and --registry"
                )
            from gpubench_plugin.cli.report.site import write_site

            folder = Path(options.site)
            with resolver:
                site = write_site(folder, resolver, last=options.last, public=options.public)
                warn(resolver.index_notes)
            warn(f"left out: {name}: {error}" for name, error in site["left_out"].items())
            pages = f"{counted(len(site['pages']), 'page')}, {len(site['written'])} written anew"
            pages += f", {len(site['removed'])} removed" * bool(site["removed"])
            show(options, site, [f"site: {site['index']}: {pages}"])
            return ExitCode.OK
        file = writable_file("--output", options.output or "report.html", resolver.here)
        self._write(options, resolver, file)
        show(options, {"report": str(file)}, [f"report: {file}"])
        return ExitCode.OK

    def _write(self, options: argparse.Namespace, resolver: Resolver, file: Path) -> None:
        from gpubench_plugin.baselines.trend import HistorySource
        from gpubench_plugin.cli.benchmark_names import selected_benchmarks
        from gpubench_plugin.cli.report.pages import page_of
        from gpubench_plugin.cli.report.writing import write_page

        with resolver:
            subject = _subject(options.subject or [LAST], resolver)
            scope, names = subject.title, subject.head.measurements
            named = {
                name
                for text in options.detail
                for name in selected_benchmarks(text, names, scope, most=math.inf)
            }
            page = page_of(subject, HistorySource(resolver.index), named=named, last=options.last)
            warn(resolver.index_notes)
        write_page(file, page, public=options.public, sides=subject.sides.values())


def _subject(texts: Sequence[str], resolver: Resolver) -> Subject:
    """What the arguments name.

    Raises:
        UsageProblem: they are too many, or name no run or comparison, or several.
    """
    from gpubench_plugin.cli.report import subjects
    from gpubench_plugin.compare.comparison import compare_runs

    if len(texts) > 2:
        raise UsageProblem(f"{texts[2]}: one too many; allowed: a run, a base and a head")
    if len(texts) == 1:
        folder = find_comparison(resolver.results_dir, texts[0], cwd=resolver.here)
        if folder is not None:
            return subjects.subject_of_comparison(folder)
        return subjects.subject_of_run(resolver.run(texts[0]).run, resolver)
    runs = (resolver.run(text).run for text in texts)
    base, head = (replace(run, label=run.run_id or run.label) for run in runs)  # not as `last`
    try:
        comparison = compare_runs(base, head)
    except NothingComparable as error:
        comparison = Comparison(base=base.label, head=head.label, notes=(str(error),))
    return subjects.subject_of_runs(base, head, comparison)
