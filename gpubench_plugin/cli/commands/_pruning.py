"""``gpubench runs prune``: delete run data, and report what was kept and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.cli.commands._places import Locations, echo, echo_json, warn
from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.core.errors import GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.core.format import byte_size, counted
from gpubench_plugin.reports.text import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpubench_plugin.baselines.resolve import Resolver
    from gpubench_plugin.baselines.store import Baselines
    from gpubench_plugin.results.prune import Leftover, PruneTarget
    from gpubench_plugin.results.reader import RunOverview
    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.results.run_directory import RunDirectory

_UNBEGUN_DAYS: Final = 1.0
"""Age from which a run's folder without a journal is a leftover: the journal follows within
seconds, with thousands of benchmarks within a minute."""
_MAX_DAYS: Final = 7e5
"""About 1,900 years: ``datetime`` holds no date before year 1."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that select runs and what to delete of them."""
    add = parser.add_argument
    add("--keep-last", type=int, metavar="N", help="keep the last N runs of each experiment")
    add("--older-than", type=float, metavar="DAYS", help="keep runs modified in the last DAYS days")
    add("--samples", action="store_true", help="also delete per-rank samples and logs")
    add("--runs", action="store_true", help="delete runs, but none tagged or used by a baseline")
    add(
        "--registered",
        action="store_true",
        help="with --runs: also delete runs of which only the registry is left",
    )
    add("--dry-run", action="store_true", help="only show what would be deleted")


def prune(options: argparse.Namespace, paths: Locations) -> int:
    """Delete, or list with --dry-run; failures are reported and give exit code 4.

    Raises:
        UsageProblem: neither a number nor an age was given, or a negative one.
        RegistryError, ResultsError: with ``--runs``, the pinned runs are unknown.
    """
    from gpubench_plugin.results.prune import leftovers, select_old
    from gpubench_plugin.results.run_directory import runs_in

    _validate(options)
    now = datetime.now(UTC)
    candidates = select_old(
        runs_in(paths.results_dir), keep_last=options.keep_last, days=options.older_than, now=now
    )
    with paths.baselines() as (baselines, resolver):
        protected = _protected_runs(baselines, resolver) if options.runs else {}
        registry = resolver.registry if options.runs else None
        pruning = _Pruning(options=options, registry=registry, protected=protected)
        for directory in candidates:
            pruning.prune_run(directory)
        if options.registered and registry is not None:
            local_ids = {directory.run_id for directory in runs_in(paths.results_dir)}
            for run in _old_runs(registry.runs(), options, now):
                if run.run_id not in local_ids:
                    pruning.prune_registered(run)
        days = max(_UNBEGUN_DAYS, options.older_than or 0)
        cutoff = now - timedelta(days=days) if options.runs else None
        for leftover in list(leftovers(paths.results_dir, unbegun_before=cutoff)):
            pruning.remove_leftover(leftover)
    if options.format == "json":
        echo_json(pruning.document())
    else:
        echo([*pruning.lines(), pruning.total()])
    warn(pruning.errors)
    return ExitCode.INFRASTRUCTURE if pruning.errors else ExitCode.OK


def _protected_runs(baselines: Baselines, resolver: Resolver) -> dict[str, str]:
    """Baseline names by id of each run they depend on, pinned or not.

    Without one of its samples a baseline's window would move, and creep would not add up.
    """
    samples = resolver.rested_on([baselines.require(name) for name in baselines.names()])
    return {**samples, **{run: ", ".join(names) for run, names in baselines.pinned().items()}}


def _old_runs(
    runs: Iterable[RunOverview], options: argparse.Namespace, now: datetime
) -> Iterator[RunOverview]:
    """Those of `runs`, newest first, that the options select by number and age."""
    numbers: Counter[str] = Counter()
    for run in runs:
        numbers[run.experiment] += 1
        if numbers[run.experiment] <= (options.keep_last or 0) or not run.started:
            continue
        age = now - datetime.fromisoformat(run.started)
        if age >= timedelta(days=options.older_than or 0):
            yield run


def _validate(options: argparse.Namespace) -> None:
    if options.registered and not options.runs:
        raise UsageProblem("--registered: requires --runs")
    if options.keep_last is None and options.older_than is None:
        raise UsageProblem("nothing selected; give --keep-last, --older-than or both")
    if (options.keep_last or 0) < 0:
        raise UsageProblem(f"--keep-last: {options.keep_last} is not a non-negative integer")
    if not (options.older_than is None or 0 <= options.older_than <= _MAX_DAYS):
        raise UsageProblem(f"--older-than: {options.older_than} is not from 0 to 700000 days")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """What became of a run, a part of one, or a leftover: `kept` says why it stays."""

    path: str
    bytes: int = 0
    kept: str = ""
    leftover: bool = False


@dataclass(kw_only=True)
class _Pruning:
    """One pruning pass; `protected` maps run ids to the baselines that depend on them."""

    options: argparse.Namespace
    registry: Registry | None
    protected: Mapping[str, str]
    errors: list[str] = field(default_factory=list)
    entries: list[_Entry] = field(default_factory=list)
    removed: int = 0
    removed_bytes: int = 0

    def prune_run(self, directory: RunDirectory) -> None:
        """Prune one run."""
        label = f"{directory.experiment}/{directory.run_id}"
        try:
            removals = self._removals(directory)
        except _KeepRunError as reason:
            self.entries.append(_Entry(path=label, kept=str(reason)))
            return
        except GpubenchError as error:
            self.errors.append(str(error))
            return
        for removal in removals:
            part = removal.path.relative_to(directory.path).as_posix()
            if self._apply(removal):
                suffix = "" if part == "." else f"/{part}"
                self.entries.append(_Entry(path=f"{label}{suffix}", bytes=removal.bytes))

    def prune_registered(self, run: RunOverview) -> None:
        """Prune a run whose folder is elsewhere or gone."""
        label = f"{run.experiment}/{run.run_id}"
        if reason := self._protection(run.run_id, run.tags):
            self.entries.append(_Entry(path=label, kept=reason))
            return
        if not self.options.dry_run:
            self._remove_from_registry(run.run_id)
        self.entries.append(_Entry(path=label))
        self.removed += 1

    def _protection(self, run_id: str, tags: Collection[str]) -> str:
        """Why the run has to stay, if so."""
        if names := self.protected.get(run_id):
            return f"used by baseline {names}"
        return f"tagged {', '.join(tags)}" if tags else ""

    def remove_leftover(self, leftover: Leftover) -> None:
        """Delete leftovers of a killed process."""
        from gpubench_plugin.results.prune import remove_leftover

        try:
            if not self.options.dry_run:
                remove_leftover(leftover.path)
        except GpubenchError as error:
            self.errors.append(str(error))
            return
        label = "/".join(leftover.path.parts[-2:])
        self.entries.append(_Entry(path=label, bytes=leftover.bytes, leftover=True))

    def lines(self) -> Iterator[str]:
        """What became of each run and leftover."""
        for entry in self.entries:
            label = printable(entry.path)
            if entry.kept:
                yield f"kept {label}: {printable(entry.kept)}"
            else:
                origin = ", left over by a killed process" if entry.leftover else ""
                yield f"{self._verb()} {label}  {byte_size(entry.bytes)}{origin}"

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "dry_run": self.options.dry_run,
            "removed": [
                {"path": entry.path, "bytes": entry.bytes, "leftover": entry.leftover}
                for entry in self.entries
                if not entry.kept
            ],
            "kept": [
                {"path": entry.path, "reason": entry.kept} for entry in self.entries if entry.kept
            ],
            "removed_bytes": self.removed_bytes,
            "errors": self.errors,
        }

    def total(self) -> str:
        """Summary line."""
        noun = "run" if self.options.runs else "folder"
        return (
            f"{self._verb()} {counted(self.removed, noun)}, "
            f"{byte_size(self.removed_bytes)} ({self.removed_bytes} bytes)"
        )

    def _verb(self) -> str:
        return "would remove" if self.options.dry_run else "removed"

    def _removals(self, directory: RunDirectory) -> list[PruneTarget]:
        from gpubench_plugin.results import prune as pruning
        from gpubench_plugin.results.reader import is_being_written
        from gpubench_plugin.results.tags import tags_of

        if pruning.is_link(directory):
            raise _KeepRunError("it is a symbolic link")
        if is_being_written(directory):
            raise _KeepRunError("the run is still being written")
        if not self.options.runs:
            folders = (*pruning.HEAVY, *(pruning.PER_RANK if self.options.samples else ()))
            return pruning.part_removals(directory, folders)
        try:
            tags = tags_of(directory)
        except ResultsError as error:
            raise _KeepRunError(f"cannot tell whether it is tagged: {error}") from error
        if reason := self._protection(directory.run_id, tags):
            raise _KeepRunError(reason)
        if unknown_files := pruning.unknown_files(directory):
            raise _KeepRunError(
                f"contains files not written by gpubench: {', '.join(unknown_files)}"
            )
        return [pruning.whole_run_removal(directory)]

    def _apply(self, removal: PruneTarget) -> bool:
        from gpubench_plugin.results.prune import remove

        run = removal.directory
        try:
            if not self.options.dry_run:
                remove(removal, forget=lambda: self._remove_from_registry(run.run_id))
        except GpubenchError as error:
            self.errors.append(str(error))
            if removal.path.exists():
                return False
        self.removed += 1
        self.removed_bytes += removal.bytes
        return True

    def _remove_from_registry(self, run_id: str) -> None:
        if self.registry is not None:
            self.registry.forget(run_id)


class _KeepRunError(GpubenchError):
    """Reason why a run is kept."""
