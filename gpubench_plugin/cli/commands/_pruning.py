"""``gpubench runs prune``: what goes, what stays and why, and how many bytes it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpubench_plugin.cli.commands._places import Places, note, say
from gpubench_plugin.cli.commands.base import Exit
from gpubench_plugin.environment import byte_size, counted
from gpubench_plugin.errors import GpubenchError, RegistryError, ResultsError, UsageProblem
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from gpubench_plugin.compare.baselines import Baselines, Resolver
    from gpubench_plugin.results import Leftover, Removal, RunDirectory
    from gpubench_plugin.results.registry import Registry

_UNBEGUN_DAYS: Final = 1.0
"""From a run's folder to its journal it takes seconds, with thousands of benchmarks a minute."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, and what of them."""
    parser.add_argument(
        "--keep-last", type=int, metavar="N", help="spare the last N of each experiment"
    )
    parser.add_argument(
        "--older-than", type=float, metavar="DAYS", help="spare runs written to since"
    )
    parser.add_argument(
        "--samples", action="store_true", help="also the samples and logs of single ranks"
    )
    parser.add_argument(
        "--runs",
        action="store_true",
        help="whole runs, but for those that are tagged or that a baseline rests on",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")


def prune(options: argparse.Namespace, places: Places) -> int:
    """Remove it, or say what would go; what cannot be removed is said, and the exit code is 4.

    Raises:
        UsageProblem: neither a number nor an age was given, or a negative one.
        RegistryError, ResultsError: whole runs, and nobody knows which of them are pinned.
    """
    from gpubench_plugin.results import leftovers, older, runs_in

    _check(options)
    now = datetime.now(UTC)
    chosen = older(
        runs_in(places.results_dir), keep_last=options.keep_last, days=options.older_than, now=now
    )
    with places.baselines() as (baselines, resolver):
        kept = _kept(baselines, resolver) if options.runs else {}
        if options.runs and baselines.unanswered:
            raise RegistryError(
                "which runs are pinned on other machines is not known, so none is removed: "
                f"{baselines.unanswered}; --registry=none goes by the files alone"
            )
        pruning = _Pruning(options=options, registry=resolver.reached.registry, kept=kept)
        for directory in chosen:
            say(pruning.lines(directory))
        days = max(_UNBEGUN_DAYS, options.older_than or 0)
        before = now - timedelta(days=days) if options.runs else None
        for leftover in list(leftovers(places.results_dir, unbegun_before=before)):
            say(pruning.tidied(leftover))
    say([pruning.total()])
    note(pruning.problems)
    return Exit.INFRASTRUCTURE if pruning.problems else Exit.FINE


def _kept(baselines: Baselines, resolver: Resolver) -> dict[str, str]:
    """Each run that a baseline rests on, pinned or a sample, with the baselines' names.

    Without one of its samples a window would move on, and creep would no longer add up.
    """
    samples = resolver.rested_on([baselines.expect(name) for name in baselines.names()])
    return {**samples, **{run: ", ".join(names) for run, names in baselines.kept_runs().items()}}


def _check(options: argparse.Namespace) -> None:
    if options.keep_last is None and options.older_than is None:
        raise UsageProblem(
            "gpubench runs prune: which runs? give --keep-last, --older-than or both"
        )
    if (options.keep_last or 0) < 0:
        raise UsageProblem(f"--keep-last: {options.keep_last} is not a whole number from 0")
    if not (options.older_than is None or 0 <= options.older_than < 1e6):
        raise UsageProblem(f"--older-than: {options.older_than} is not a number of days from 0")


@dataclass(kw_only=True)
class _Pruning:
    """One pass over the runs; `kept` has the baselines that rest on a run, by its id."""

    options: argparse.Namespace
    registry: Registry | None
    kept: Mapping[str, str]
    problems: list[str] = field(default_factory=list)
    removed: int = 0
    bytes: int = 0

    def lines(self, directory: RunDirectory) -> Iterator[str]:
        """Remove what goes of one run, and say it."""
        named = printable(f"{directory.experiment}/{directory.run_id}")
        try:
            removals = self._removals(directory)
        except _StaysError as reason:
            yield f"stays    {named}: {printable(str(reason))}"
            return
        except GpubenchError as error:
            self.problems.append(str(error))
            return
        for removal in removals:
            part = removal.path.relative_to(directory.path).as_posix()
            if self._done(removal):
                shown = named if part == "." else f"{named}/{part}"
                yield f"{self._verb()} {shown}  {byte_size(removal.bytes)}"

    def tidied(self, leftover: Leftover) -> Iterator[str]:
        """Remove what a killed process left, and say it."""
        from gpubench_plugin.results import remove_leftover

        try:
            if not self.options.dry_run:
                remove_leftover(leftover.path)
        except GpubenchError as error:
            self.problems.append(str(error))
            return
        named = printable("/".join(leftover.path.parts[-2:]))
        yield f"{self._verb()} {named}  {byte_size(leftover.bytes)}, left by a killed process"

    def total(self) -> str:
        """What it was in all."""
        what = "run" if self.options.runs else "folder"
        return (
            f"{self._verb()} {counted(self.removed, what)}, "
            f"{byte_size(self.bytes)} ({self.bytes} bytes)"
        )

    def _verb(self) -> str:
        return "would go" if self.options.dry_run else "removed "

    def _removals(self, directory: RunDirectory) -> list[Removal]:
        from gpubench_plugin.results import is_being_written, tags_of
        from gpubench_plugin.results import prune as pruning

        if pruning.is_link(directory):
            raise _StaysError("it is a link")
        if is_being_written(directory):
            raise _StaysError("it is being written")
        if not self.options.runs:
            folders = (*pruning.HEAVY, *(pruning.PER_RANK if self.options.samples else ()))
            return pruning.removals(directory, folders)
        if names := self.kept.get(directory.run_id):
            raise _StaysError(f"baseline {names} rests on it")
        try:
            tags = tags_of(directory)
        except ResultsError as error:
            raise _StaysError(f"whether it is tagged is not known: {error}") from error
        if tags:
            raise _StaysError(f"it is tagged {', '.join(tags)}")
        if foreign := pruning.foreign_files(directory):
            raise _StaysError(f"it also holds {', '.join(foreign)}, which gpubench did not write")
        return [pruning.whole(directory)]

    def _done(self, removal: Removal) -> bool:
        from gpubench_plugin.results import remove

        run = removal.directory
        try:
            if not self.options.dry_run:
                remove(removal, forget=lambda: self._forget(run))
        except GpubenchError as error:
            self.problems.append(str(error))
            if removal.path.exists():
                return False
        self.removed += 1
        self.bytes += removal.bytes
        return True

    def _forget(self, run: RunDirectory) -> None:
        if self.registry is not None:
            self.registry.forget(run.run_id)


class _StaysError(GpubenchError):
    """Why a run is left alone."""
