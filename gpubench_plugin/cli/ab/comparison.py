"""A whole comparison: set up both sides, measure, judge, report, and clean up.

The report is files in the comparison's folder, a text for the user, and GitHub's pages.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin import catalog
from gpubench_plugin.cli.ab import probe
from gpubench_plugin.cli.ab.findings import Findings, next_pairs
from gpubench_plugin.cli.ab.git import Repository
from gpubench_plugin.cli.ab.launch import PROBE, Launcher
from gpubench_plugin.cli.ab.preflight import offers
from gpubench_plugin.cli.ab.progress import Progress
from gpubench_plugin.cli.ab.request import Asked
from gpubench_plugin.cli.ab.sides import SIDES, SideName, Source, side, source
from gpubench_plugin.cli.ab.state import State
from gpubench_plugin.cli.ab.trial import Contender, Trial
from gpubench_plugin.cli.ab.workspaces import Workspace, workspace
from gpubench_plugin.environment import counted, json_files
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.launchers import ended_by_signals
from gpubench_plugin.records import Comparison
from gpubench_plugin.reports.formats import Page
from gpubench_plugin.results import new_run_id

if TYPE_CHECKING:
    from gpubench_plugin.reports.formats import Format


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What came out: `folder` holds all of it.

    `locations` are file and line of the benchmarks; `broken` those that work on the base and fail
    on the head; `judged` counts the series that could be judged. `advice` is the command line that
    would decide what is open, empty where there is none.
    """

    folder: Path
    comparison: Comparison
    locations: dict[str, tuple[str, int]]
    broken: tuple[str, ...]
    judged: int
    advice: str = ""


def new_state(results_dir: Path, asked: Asked) -> State:
    """A comparison that begins now, in a folder of its own below ``<results>/ab``.

    That folder ignores itself, so that no result is ever an uncommitted change.

    Raises:
        UsageProblem: a side does not exist.
        ResultsError: the folder cannot be written.
    """
    sources = _sources(asked)
    # Before the identity, so that each change of that is a change of these.
    files = {name: one.files() for name, one in sources.items()}
    identity = _identity(asked, sources)
    folder = results_dir / "ab" / new_run_id("ab", datetime.now(UTC))
    try:
        folder.mkdir(parents=True)
        mark = folder.parent / ".gitignore"
        if not mark.exists():
            json_files.write_text(mark, "*\n")
    except OSError as error:
        raise ResultsError(f"{folder} cannot be made: {error.strerror}") from error
    state = State(
        folder=folder,
        asked=asked.to_json(),
        identity=identity,
        seed=secrets.randbits(32),
        files=files,
    )
    state.write()
    return state


def earlier_state(folder: Path) -> tuple[State, Asked]:
    """The comparison in `folder` and what it was asked for.

    Raises:
        UsageProblem: there is none, or it is not as it was written.
        ResultsError: it cannot be read.
    """
    state = State.read(folder.resolve())
    return state, Asked.from_json(state.asked, f"{state.folder}: what was asked")


def compare(state: State, asked: Asked, progress: Progress) -> Compared:
    """Measure what `state` lacks, and judge; nothing is left outside of its folder.

    Raises:
        UsageProblem: bad input, see the modules; or the sides are not those of `state`.
        NothingComparable: pytest selected no benchmark.
        ResultsError: launches fail, or a file could not be written.
    """
    try:
        return _compare(state, asked, progress)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise ResultsError(f"{where}{error.strerror or error}") from error


def _compare(state: State, asked: Asked, progress: Progress) -> Compared:
    sources = _sources(asked)
    _require_same(state, asked, sources)
    repository = Repository.around(asked.here)
    with state.held(), ended_by_signals(), workspace(repository, progress.say) as space:
        state.ask(asked.to_json())
        own = _own_repository(sources, repository)
        launcher = _launcher(asked, space, own)
        contenders, notes = _contenders(sources, asked.here, launcher, space, repository)
        trial = Trial(
            state, asked, contenders, repository=own, launcher=launcher, progress=progress
        )
        try:
            findings = trial.run()
        finally:
            progress.clear()
        if asked.exempt:
            notes += [
                f"{n}: Python {c.offers.python}, {c.side.python}" for n, c in contenders.items()
            ]
        return _compared(state, asked, trial, findings, [*notes, *_notes(trial, state)])


def _compared(
    state: State, asked: Asked, trial: Trial, findings: Findings, notes: list[str]
) -> Compared:
    if asked.limits_from == "head":
        notes.append("limits are the head's where the sides state others (--limits-from=head)")
    if findings.broken:
        broken = counted(len(findings.broken), "benchmark")
        notes.append(f"works on the base, fails on the head: {broken}")
    return Compared(
        folder=state.folder,
        comparison=findings.comparison(*notes),
        locations=trial.locations(),
        broken=tuple(findings.broken),
        judged=findings.suite,
        advice=advice(state, findings, asked.unchanged_from),
    )


def advice(state: State, findings: Findings, unchanged_from: int) -> str:
    """The command line that goes on with as many pairs as the reasons of what is open ask for."""
    if not findings.open:
        return ""
    looked = state.looked
    pairs = next_pairs(findings.undecided, looked=looked, unchanged_from=unchanged_from)
    return resume_command(state.folder, pairs) if pairs else ""


def resume_command(folder: Path, pairs: int | None = None) -> str:
    """The command line that goes on with the comparison in `folder`, to so many pairs in all."""
    extent = [f"--pairs={pairs}"] if pairs else []
    return shlex.join(["gpubench", "ab", f"--resume={folder}", *extent])


def _sources(asked: Asked) -> dict[SideName, Source]:
    repository = Repository.around(asked.here)
    texts = {"base": asked.base, "head": asked.head}
    pythons = {"base": asked.base_python, "head": asked.head_python}
    return {
        name: source(name, texts[name], pythons[name], here=asked.here, repository=repository)
        for name in SIDES
    }


def _identity(asked: Asked, sources: dict[SideName, Source]) -> dict[str, Any]:
    told = asked.to_json()
    kept = ("here", "arguments", "limits", "allow_incomparable")
    return {
        **{name: source.identity() for name, source in sources.items()},
        **{name: told[name] for name in kept},
    }


def _require_same(state: State, asked: Asked, sources: dict[SideName, Source]) -> None:
    """Refuse other code than that of `state`; one that begins now was asked for nothing else."""
    if not state.files:
        state.require_same(_identity(asked, sources))
    for name, files in state.files.items():
        sources[name].require_unchanged(state.identity[name], files)


def _contenders(
    sources: dict[SideName, Source],
    here: Path,
    launcher: Launcher,
    space: Workspace,
    repository: Repository | None,
) -> tuple[dict[SideName, Contender], list[str]]:
    """Both sides in their trees, and what a tree that was checked out lacks."""
    below = here.relative_to(repository.top) if repository else Path()
    found: dict[SideName, Contender] = {}
    notes: list[str] = []
    for name, one in sources.items():
        tree = one.folder
        if tree is None and one.repository is not None and one.commit is not None:
            tree = space.tree(name)
            one.repository.check_out(one.commit, tree)
            notes += [f"{name}: {said}" for said in one.repository.missing_in(tree)]
        ready = side(one, tree=tree or here, below=below)
        offered = offers(ready, launcher.environment(ready))
        found[name] = Contender(source=one, side=ready, offers=offered)
    return found, notes


def _own_repository(sources: dict[SideName, Source], repository: Repository | None) -> Path | None:
    """The user's repository, where a side is one of its states."""
    if repository is None:
        return None
    of_it = any(one.commit is not None or one.folder == repository.top for one in sources.values())
    return repository.top if of_it else None


def _launcher(asked: Asked, space: Workspace, repository: Path | None) -> Launcher:
    """A launcher with a copy of the probe, alone in its folder: nothing else comes with it."""
    copy = space.path / "probe" / f"{PROBE}.py"
    copy.parent.mkdir()
    shutil.copyfile(probe.__file__, copy)
    return Launcher(asked.arguments, workspace=space, probe=copy, repository=repository)


def _notes(trial: Trial, state: State) -> list[str]:
    launches = sum(not done.problem for done in state.done)
    failed = len(state.done) - launches
    said = [f"{launches} launches, interleaved from seed {state.seed}"]
    if failed:
        said.append(f"launches that failed, so that their pair was repeated: {failed}")
    said += trial.disturbance_notes()
    if not trial.freezes_rounds:
        said.append(
            "the number of rounds is not fixed, since a side's gpubench is too old for it: a "
            "minimum of more rounds is lower"
        )
    return said


VERDICTS: Final = "verdicts.json"


def rendered(
    comparison: Comparison, format_name: str, *, width: int = 80, color: bool = False
) -> str:
    """The comparison in that format."""
    form: Format = catalog.load("formats", format_name)
    return form([comparison], Page(width=width, color=color))


def write_files(folder: Path, comparison: Comparison) -> None:
    """``verdicts.json`` and ``report.md`` in `folder`; raises ResultsError."""
    json_files.write_text(folder / VERDICTS, rendered(comparison, "json"))
    json_files.write_text(folder / "report.md", rendered(comparison, "markdown"))
