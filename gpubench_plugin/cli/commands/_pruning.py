"""``gpubench runs prune``: delete run data, and report what was kept and why."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli.commands._places import exit_code, show
from gpubench_plugin.core.errors import GpubenchError, RegistryError, UsageProblem
from gpubench_plugin.core.format import byte_size, counted
from gpubench_plugin.core.records import Json
from gpubench_plugin.reports.text import printable
from gpubench_plugin.results import prune as pruning
from gpubench_plugin.results.reader import RunOverview, current_tags, is_being_written
from gpubench_plugin.results.run_directory import RunDirectory, runs_in, tags_of

if TYPE_CHECKING:
    from gpubench_plugin.results.registry.registry import Registry


def prune(options: argparse.Namespace, resolver: Resolver) -> int:
    """Delete, or list with --dry-run; failures are reported and give exit code 4.

    Raises:
        UsageProblem: neither a number nor an age was given, or a negative one.
        RegistryError, ResultsError: with ``--runs``, the pinned runs are unknown.
    """
    _validate(options)
    now, keep_last, days = datetime.now(UTC), options.keep_last, options.older_than
    select = partial(pruning.select_old, keep_last=keep_last, days=days, now=now)
    local_runs = runs_in(resolver.results_dir)
    baselines = resolver.baselines()
    protected = _protected_runs(baselines, resolver) if options.runs else {}
    registry = resolver.registry if options.runs else None
    registered = () if registry is None else tuple(registry.runs())
    report = _Pruning(
        options=options,
        registry=registry,
        protected=protected,
        registered={run.run_id: run for run in registered},
    )
    for directory in reversed(select(local_runs[::-1], pruning.last_written)):
        report.prune_run(directory)
    if options.registered:
        local_ids = {directory.run_id for directory in local_runs}
        for run in select(registered, _started_at):
            if run.run_id not in local_ids:
                report.prune_run(run)
    for leftover in list(pruning.leftovers(resolver.results_dir)):
        report.remove_leftover(leftover)
    show(options, report.document(), report.lines())
    return exit_code(*report.errors)


def _protected_runs(baselines: Baselines, resolver: Resolver) -> dict[str, str]:
    """Baseline names by id of each run they depend on, pinned or not.

    Without one of its samples a baseline's window would move, and creep would not add up.
    """
    named = [baselines.require(name) for name in baselines.names()]
    samples = resolver.rested_on(named)
    if named and (notes := resolver.reached.notes):
        raise RegistryError(f"the samples of baselines are not all known: {'; '.join(notes)}")
    return {**samples, **{run: ", ".join(names) for run, names in baselines.pinned().items()}}


def _started_at(run: RunOverview) -> float:
    """Start in epoch seconds; infinite if unknown, so that the run stays."""
    return datetime.fromisoformat(run.started).timestamp() if run.started else math.inf


def _validate(options: argparse.Namespace) -> None:
    if options.registered and not options.runs:
        raise UsageProblem("--registered: requires --runs")
    if options.keep_last is None and options.older_than is None:
        raise UsageProblem("nothing selected; give --keep-last, --older-than or both")
    if options.older_than is not None and not options.older_than >= 0:  # not a number is neither
        raise UsageProblem(f"--older-than: {options.older_than} is not a number of days")


@dataclass(kw_only=True)
class _Pruning:
    """One pruning pass; `protected` maps run ids to the baselines that depend on them.

    `registered` are the runs that the registry has, by id.
    `removed` and `kept` are the entries of the report.
    """

    options: argparse.Namespace
    registry: Registry | None
    protected: Mapping[str, str]
    registered: Mapping[str, RunOverview]
    removed: list[Json] = field(default_factory=list)
    kept: list[Json] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def prune_run(self, run: RunDirectory | RunOverview) -> None:
        """Prune a run, also one whose folder is elsewhere or gone, or note why it is kept."""
        label = f"{run.experiment}/{run.run_id}"
        with self._errors_noted():
            if reason := self._reason_to_keep(run):
                self.kept.append({"path": label, "reason": reason})
                return
            if isinstance(run, RunOverview):
                if not self.options.dry_run:
                    self._forget(run.run_id)
                self.removed.append({"path": label, "bytes": 0, "leftover": False})
                return
            for target in self._targets(run):
                if not self.options.dry_run:
                    pruning.remove(run, target.path, forget=lambda: self._forget(run.run_id))
                path = str(PurePosixPath(label, target.path.relative_to(run.path)))
                self.removed.append({"path": path, "bytes": target.bytes, "leftover": False})

    def remove_leftover(self, leftover: pruning.PruneTarget) -> None:
        """Delete leftovers of a killed process."""
        with self._errors_noted():
            if not self.options.dry_run:
                pruning.remove_leftover(leftover.path)
            path = "/".join(leftover.path.parts[-2:])
            self.removed.append({"path": path, "bytes": leftover.bytes, "leftover": True})

    def document(self) -> Json:
        """The report for programs."""
        return {
            "dry_run": self.options.dry_run,
            "removed": self.removed,
            "kept": self.kept,
            "removed_bytes": self._removed_bytes(),
            "errors": self.errors,
        }

    def lines(self) -> Iterator[str]:
        """The same as text."""
        verb = "would remove" if self.options.dry_run else "removed"
        for entry in self.removed:
            origin = ", left over by a killed process" if entry["leftover"] else ""
            yield f"{verb} {printable(entry['path'])}  {byte_size(entry['bytes'])}{origin}"
        for entry in self.kept:
            yield printable(f"kept {entry['path']}: {entry['reason']}")
        noun = "run" if self.options.runs else "folder"
        count = sum(not entry["leftover"] for entry in self.removed)
        size = self._removed_bytes()
        yield f"{verb} {counted(count, noun)}, {byte_size(size)} ({size} bytes)"

    def _removed_bytes(self) -> int:
        return sum(entry["bytes"] for entry in self.removed if not entry["leftover"])

    @contextmanager
    def _errors_noted(self) -> Iterator[None]:
        try:
            yield
        except GpubenchError as error:
            self.errors.append(str(error))

    def _reason_to_keep(self, run: RunDirectory | RunOverview) -> str:
        """Why nothing of the run is removed; empty if nothing speaks against it."""
        if isinstance(run, RunOverview):
            return self._protection(run.run_id, run.tags)
        if is_being_written(run):
            return "the run is still being written"
        if not self.options.runs:
            return ""
        # Also those that a registry which has the run never took over: one too many only keeps it.
        registered = current_tags(run, self.registered.get(run.run_id))
        if reason := self._protection(run.run_id, sorted({*tags_of(run), *registered})):
            return reason
        if unknown_files := pruning.unknown_files(run):
            return f"contains files not written by gpubench: {', '.join(unknown_files)}"
        return ""

    def _protection(self, run_id: str, tags: Collection[str]) -> str:
        if names := self.protected.get(run_id):
            return f"used by baseline {names}"
        return f"tagged {', '.join(tags)}" if tags else ""

    def _targets(self, directory: RunDirectory) -> list[pruning.PruneTarget]:
        if self.options.runs:
            return pruning.targets([directory.path])
        folders = (*pruning.HEAVY, *(pruning.PER_RANK if self.options.samples else ()))
        return pruning.targets(directory.path / name for name in folders)

    def _forget(self, run_id: str) -> None:
        if self.registry is not None:
            self.registry.forget(run_id)
