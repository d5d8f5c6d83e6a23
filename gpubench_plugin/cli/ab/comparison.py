"""A complete A/B comparison: set up both sides, measure, judge, report, clean up.

Reports are files in the comparison's folder, a text for the user, and GitHub's summary.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gpubench_plugin.cli.ab.git import Repository, temporary_workspace, tree_in
from gpubench_plugin.cli.ab.launch import PytestProcess, python_version
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.runner import ComparisonRunner, Progress
from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.cli.ab.sides import Side, resolve_side
from gpubench_plugin.cli.ab.tracker import Tracker, next_pairs
from gpubench_plugin.compare.effective_limits import SideName
from gpubench_plugin.core import catalog
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.reports.formats.base import Format, Page
from gpubench_plugin.results.run_directory import new_run_id
from gpubench_plugin.system import json_files
from gpubench_plugin.system.signals import exit_on_signals

Sides = Mapping[SideName, Side]


Locations = Mapping[str, tuple[str, int]]
"""File and line by benchmark."""


def resolve_sides(request: Request) -> Sides:
    """Both sides as they are now; raises UsageProblem."""
    cwd, repository = request.here, Repository.containing(request.here)
    base = resolve_side("base", request.base, request.base_python, cwd=cwd, repository=repository)
    head = resolve_side("head", request.head, request.head_python, cwd=cwd, repository=repository)
    return {"base": base, "head": head}


def new_state(results_dir: Path, request: Request, sides: Sides) -> SavedState:
    """Start a new comparison in its own folder below ``<results>/ab``.

    A .gitignore there keeps results out of the uncommitted changes. Raises ResultsError or OSError.
    """
    folder = results_dir / "ab" / new_run_id("ab", datetime.now(UTC))
    folder.mkdir(parents=True)
    json_files.write_text(folder.parent / ".gitignore", "*\n")
    state = SavedState(
        folder=folder,
        request=request,
        identity={name: side.identity() for name, side in sides.items()},
        seed=secrets.randbits(32),
    )
    state.write()
    return state


def compare(
    state: SavedState, sides: Sides, progress: Progress
) -> tuple[Comparison, Locations, str]:
    """Measure what is missing in `state` and judge; files are left only in its folder.

    Returns:
        The verdicts, the places of the benchmarks, and what would decide what is open, if anything.

    Raises:
        UsageProblem: bad input, or the `sides` are not those of `state`.
        NothingComparable: pytest selected no benchmark.
        ResultsError, OSError: launches fail, or a file cannot be written.
    """
    state.require_same({name: side.identity() for name, side in sides.items()})
    request, repository = state.request, Repository.containing(state.request.here)
    # The user's working tree, if one of the sides is a state of its repository.
    own_tree = None
    if repository is not None and any(
        side.code is None or side.tree == repository.top for side in sides.values()
    ):
        own_tree = repository.top
    with (
        state.locked(),
        exit_on_signals(),
        temporary_workspace(repository, progress.message) as space,
    ):
        state.write()
        launcher = PytestProcess(arguments=request.arguments, workspace=space, repository=own_tree)
        if repository is not None:
            subdirectory = request.here.relative_to(repository.top)
            sides = {n: s.checked_out(tree_in(space, n), subdirectory) for n, s in sides.items()}
        pythons = {n: python_version(s, launcher.environment(s)) for n, s in sides.items()}
        runner = ComparisonRunner(
            state=state, sides=sides, repository=own_tree, launcher=launcher, progress=progress
        )
        try:
            tracker = runner.run()
        finally:
            progress.clear()
        used = (f"{n}: Python {pythons[n]}, {s.python}" for n, s in sides.items())
        notes = (*(used if request.exempt_facts else ()), *_notes(state, runner))
        return tracker.comparison(*notes), runner.locations(), advice(state, tracker)


def _notes(state: SavedState, runner: ComparisonRunner) -> Iterator[str]:
    failed = sum(bool(launch.problem) for launch in state.launches)
    yield f"{len(state.launches) - failed} launches, interleaved from seed {state.seed}"
    if failed:
        yield f"failed launches, whose pairs were repeated: {failed}"
    yield from runner.disturbance_notes()
    if state.request.limits_from == "head":
        yield "limits taken from the head where the sides differ (--limits-from=head)"


def advice(state: SavedState, tracker: Tracker) -> str:
    """How to decide open verdicts: by as many pairs as they need, or where none help by others."""
    looked, unchanged_from = state.judged_pairs, state.request.unchanged_from
    pairs = next_pairs(tracker.undecided, looked=looked, unchanged_from=unchanged_from)
    if not tracker.open:
        return ""
    if pairs:
        what = "is still inconclusive" if tracker.pairs_needed else "more pairs can"
        return f"to decide what {what}: {resume_command(state.folder, pairs)}"
    return "more pairs would hardly help: quiet the machine (gpubench doctor), or raise the limit"


def resume_command(folder: Path, pairs: int | None = None) -> str:
    """Command line that resumes the comparison in `folder`, up to `pairs` pairs in total."""
    options = [f"--resume={folder}", *([f"--pairs={pairs}"] if pairs else [])]
    return shlex.join(["gpubench", "ab", *options])


VERDICTS: Final = "verdicts.json"


def rendered(
    comparison: Comparison, format_name: str, *, width: int = 80, color: bool = False
) -> str:
    """Render the comparison in the given format."""
    form: Format = catalog.load("formats", format_name)
    return form([comparison], Page(width=width, color=color))


def write_files(folder: Path, comparison: Comparison) -> None:
    """``verdicts.json`` and ``report.md`` in `folder`; raises ResultsError."""
    json_files.write_text(folder / VERDICTS, rendered(comparison, "json"))
    json_files.write_text(folder / "report.md", rendered(comparison, "markdown"))
