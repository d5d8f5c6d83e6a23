"""A complete A/B comparison: set up both sides, measure, judge, report, clean up.

Reports are files in the comparison's folder, a text for the user, and GitHub's summary.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.cli.ab import launch_plugin
from gpubench_plugin.cli.ab.findings import Tracker, next_pairs
from gpubench_plugin.cli.ab.git import Repository
from gpubench_plugin.cli.ab.launch import PROBE, PytestLauncher
from gpubench_plugin.cli.ab.preflight import features
from gpubench_plugin.cli.ab.progress import Progress
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.sides import SideName, Source, prepare_side, resolve_source
from gpubench_plugin.cli.ab.state import State
from gpubench_plugin.cli.ab.trial import ComparisonRunner, PreparedSide
from gpubench_plugin.cli.ab.workspaces import Workspace, temporary_workspace
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.records import Comparison
from gpubench_plugin.core.words import counted
from gpubench_plugin.environment import json_files
from gpubench_plugin.environment.signals import exit_on_signals
from gpubench_plugin.reports.formats.base import Page
from gpubench_plugin.results.run_directory import new_run_id

if TYPE_CHECKING:
    from gpubench_plugin.reports.formats.base import Format


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """Result of a comparison; `folder` holds all its files.

    `locations` are file and line by benchmark; `broken` benchmarks pass on the base and fail on the
    head; `judged_series` counts the judged ones. `advice` is the command line that would decide
    what is open, if any.
    """

    folder: Path
    comparison: Comparison
    locations: dict[str, tuple[str, int]]
    broken: tuple[str, ...]
    judged_series: int
    advice: str = ""


def new_state(results_dir: Path, request: Request) -> State:
    """Start a new comparison in its own folder below ``<results>/ab``.

    A .gitignore there keeps results out of the uncommitted changes.

    Raises:
        UsageProblem: a side does not exist.
        ResultsError: the folder cannot be written.
    """
    sources = _sources(request)
    # Before the identity, so that files show every change of it.
    files = {name: source.files() for name, source in sources.items()}
    identity = _identity(request, sources)
    folder = results_dir / "ab" / new_run_id("ab", datetime.now(UTC))
    try:
        folder.mkdir(parents=True)
        mark = folder.parent / ".gitignore"
        if not mark.exists():
            json_files.write_text(mark, "*\n")
    except OSError as error:
        raise ResultsError(f"cannot create {folder}: {error.strerror}") from error
    state = State(
        folder=folder,
        request=request.to_json(),
        identity=identity,
        seed=secrets.randbits(32),
        files=files,
    )
    state.write()
    return state


def load_state(folder: Path) -> tuple[State, Request]:
    """Load the comparison in `folder` and the request it was started with.

    Raises:
        UsageProblem: there is none.
        ResultsError: it cannot be read, or is malformed.
    """
    state = State.read(folder.resolve())
    return state, Request.from_json(state.request, f"{state.folder}: the stored request")


def compare(state: State, request: Request, progress: Progress) -> ComparisonResult:
    """Measure what is missing in `state` and judge; files are left only in its folder.

    Raises:
        UsageProblem: bad input, or the sides are not those of `state`.
        NothingComparable: pytest selected no benchmark.
        ResultsError: launches fail, or a file cannot be written.
    """
    try:
        return _compare(state, request, progress)
    except OSError as error:
        label = f"{error.filename}: " if error.filename else ""
        raise ResultsError(f"{label}{error.strerror or error}") from error


def _compare(state: State, request: Request, progress: Progress) -> ComparisonResult:
    sources = _sources(request)
    _require_same(state, request, sources)
    repository = Repository.containing(request.here)
    with (
        state.locked(),
        exit_on_signals(),
        temporary_workspace(repository, progress.message) as space,
    ):
        state.record_request(request.to_json())
        own_repository = _own_repository(sources, repository)
        launcher = _launcher(request, space, own_repository)
        contenders, notes = _prepare_sides(sources, request.here, launcher, space, repository)
        trial = ComparisonRunner(
            state,
            request,
            contenders,
            repository=own_repository,
            launcher=launcher,
            progress=progress,
        )
        try:
            findings = trial.run()
        finally:
            progress.clear()
        if request.exempt_facts:
            notes += [
                f"{n}: Python {c.offers.python}, {c.side.python}" for n, c in contenders.items()
            ]
        return _result(state, request, trial, findings, [*notes, *_notes(trial, state)])


def _result(
    state: State, request: Request, trial: ComparisonRunner, findings: Tracker, notes: list[str]
) -> ComparisonResult:
    if request.limits_from == "head":
        notes.append("limits taken from the head where the sides differ (--limits-from=head)")
    if findings.broken:
        broken = counted(len(findings.broken), "benchmark")
        notes.append(f"passes on the base, fails on the head: {broken}")
    return ComparisonResult(
        folder=state.folder,
        comparison=findings.comparison(*notes),
        locations=trial.locations(),
        broken=tuple(findings.broken),
        judged_series=findings.suite,
        advice=next_command(state, findings, request.unchanged_from),
    )


def next_command(state: State, findings: Tracker, unchanged_from: int) -> str:
    """Command line that resumes with as many pairs as the open verdicts need."""
    if not findings.open:
        return ""
    looked = state.judged_pairs
    pairs = next_pairs(findings.undecided, looked=looked, unchanged_from=unchanged_from)
    return resume_command(state.folder, pairs) if pairs else ""


def resume_command(folder: Path, pairs: int | None = None) -> str:
    """Command line that resumes the comparison in `folder`, up to `pairs` pairs in total."""
    options = [f"--resume={folder}", *([f"--pairs={pairs}"] if pairs else [])]
    return shlex.join(["gpubench", "ab", *options])


def _sources(request: Request) -> dict[SideName, Source]:
    cwd, repository = request.here, Repository.containing(request.here)
    base = resolve_source("base", request.base, request.base_python, cwd=cwd, repository=repository)
    head = resolve_source("head", request.head, request.head_python, cwd=cwd, repository=repository)
    return {"base": base, "head": head}


def _identity(request: Request, sources: dict[SideName, Source]) -> dict[str, Any]:
    options = request.to_json()
    keys = ("here", "arguments", "limits", "allow_incomparable")
    return {
        **{name: source.identity() for name, source in sources.items()},
        **{key: options[key] for key in keys},
    }


def _require_same(state: State, request: Request, sources: dict[SideName, Source]) -> None:
    """Refuse to resume `state` with different code; a new comparison always passes."""
    if not state.files:
        state.require_same(_identity(request, sources))
    for name, files in state.files.items():
        sources[name].require_unchanged(state.identity[name], files)


def _prepare_sides(
    sources: dict[SideName, Source],
    here: Path,
    launcher: PytestLauncher,
    space: Workspace,
    repository: Repository | None,
) -> tuple[dict[SideName, PreparedSide], list[str]]:
    """Prepare both sides in their trees, with warnings on incomplete checkouts."""
    subdirectory = here.relative_to(repository.top) if repository else Path()
    contenders: dict[SideName, PreparedSide] = {}
    notes: list[str] = []
    for name, source in sources.items():
        tree = source.folder
        if tree is None and source.repository is not None and source.commit is not None:
            tree = space.tree(name)
            source.repository.check_out(source.commit, tree)
            notes += [f"{name}: {warning}" for warning in source.repository.incomplete_parts(tree)]
        prepared = prepare_side(source, tree=tree or here, subdirectory=subdirectory)
        offered = features(prepared, launcher.environment(prepared))
        contenders[name] = PreparedSide(source=source, side=prepared, offers=offered)
    return contenders, notes


def _own_repository(sources: dict[SideName, Source], repository: Repository | None) -> Path | None:
    """The user's repository, if one of the sides is a state of it."""
    if repository is None:
        return None
    top, sides = repository.top, sources.values()
    return top if any(s.commit is not None or s.folder == top for s in sides) else None


def _launcher(request: Request, space: Workspace, repository: Path | None) -> PytestLauncher:
    """Build a launcher with a private copy of the probe plugin."""
    copy = space.path / "probe" / f"{PROBE}.py"
    copy.parent.mkdir()
    shutil.copyfile(launch_plugin.__file__, copy)
    return PytestLauncher(request.arguments, workspace=space, probe=copy, repository=repository)


def _notes(trial: ComparisonRunner, state: State) -> list[str]:
    failed = sum(bool(launch.problem) for launch in state.launches)
    notes = [f"{len(state.launches) - failed} launches, interleaved from seed {state.seed}"]
    if failed:
        notes.append(f"failed launches, whose pairs were repeated: {failed}")
    notes += trial.disturbance_notes()
    if not trial.can_fix_rounds:
        notes.append(
            "the number of rounds is not fixed, since one side's gpubench is too old for it: "
            "a minimum over more rounds is lower"
        )
    return notes


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
