"""The lookup of ``--baseline``, as early as possible without importing the database's libraries.

On a CPU a benchmark's peak of memory is that of this process: the libraries that speak with a
database would be measured as well, so they are loaded once all has been measured. What must be
asked of the registry before that is asked by a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from gpubench_plugin.compare.baselines import (
    Reference,
    Resolver,
    directories_of,
    names_a_run,
)
from gpubench_plugin.errors import RegistryError, ResultsError, UsageProblem
from gpubench_plugin.records import LAST, Run
from gpubench_plugin.results import find_run
from gpubench_plugin.results.registry import is_expected

if TYPE_CHECKING:
    from gpubench_plugin.config import Settings
    from gpubench_plugin.results import RunDirectory


_PATIENCE_S: Final = 30.0
"""A server that is down is found so within 10 s; starting Python and its libraries takes 1 s."""


def slip(name: str, *, url: str, results_dir: Path) -> str:
    """The message that `name` is likely a slip for another baseline's (:meth:`.Baselines.slip`).

    It is empty where it is none, and where nobody knows.
    """
    code = f"from {__name__} import answer; answer()"
    question = {"name": name, "url": url, "results_dir": str(results_dir)}
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-c", code],
            input=json.dumps(question),  # not as an argument: the URL may hold a password
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            timeout=_PATIENCE_S,
            check=True,
        )
        return str(json.loads(process.stdout)["slip"])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return ""  # it is asked again, when all is measured


def answer() -> None:
    """Answer the question on the standard input, on the standard output."""
    question = json.load(sys.stdin)
    results_dir = Path(question["results_dir"])
    with Resolver(question["url"], results_dir, results_dir) as resolver:
        message = resolver.baselines().slip(question["name"])
    json.dump({"slip": message}, sys.stdout)


Kind = Literal["history", "threshold", "last", "missing"]


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What is known of ``--baseline`` before anything is measured.

    Args:
        settings: the session's.
        here: what a relative path is seen from.
        found: what it names; None where that is looked up when all is measured.
        directories: the folders here of the runs that set the level, each with the only benchmark
            that it counts for, or None; None where the baseline is none, or a file.
        last: it is the last comparable run, which is looked up then as well.
        notes: lines for the header.
    """

    settings: Settings
    here: Path
    found: Reference | None
    directories: tuple[tuple[RunDirectory, str | None], ...] | None = None
    last: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def early(cls, settings: Settings, here: Path) -> Lookup:
        """Look as far as that is cheap.

        Raises:
            UsageProblem: there is no such run or file, it cannot be read, it is no history
                although one was asked for, or the name is likely a slip for another baseline's; or
                the last run is to gate by more than a threshold.
        """
        text = settings.baseline
        if names_a_run(text):
            run = _run(settings, here)
            folders = None if run.directory is None else ((run.directory, None),)
            return cls(settings=settings, here=here, found=run, directories=folders)
        try:
            baseline = Resolver("none", settings.results_dir, here).baselines().get(text)
        except ResultsError as error:
            raise UsageProblem(f"--baseline={text}: {error}") from error
        if baseline is not None:
            level = directories_of(baseline, settings.results_dir)
            return cls(settings=settings, here=here, found=None, directories=level)
        if text == LAST:
            if settings.gate not in {"", "threshold"}:
                raise _no_gate(settings.gate)
            return cls(settings=settings, here=here, found=None, last=True)
        if is_expected(settings.registry, settings.results_dir):
            if said := slip(text, url=settings.registry, results_dir=settings.results_dir):
                raise UsageProblem(f"--baseline={text}: {said}")
            note = f"no baseline {text!r} here; the registry is asked once all is measured"
            return cls(settings=settings, here=here, found=None, notes=(note,))
        found = _reference(settings, here)
        return cls(settings=settings, here=here, found=found, notes=found.notes)

    @property
    def kind(self) -> Kind:
        """How a run is judged by it."""
        if self.found is not None and self.found.kind == "missing":
            return "missing"
        if self.last:
            return "last"
        single = self.found is not None and self.found.kind == "single"
        return "threshold" if single or self.settings.gate == "threshold" else "history"

    def reference(self, head: Run) -> Reference:
        """What `head` is compared with.

        Raises:
            UsageProblem: it is not there any more, or the name is likely a slip for another one's.
            ResultsError: it cannot be read any more, or none of its pinned runs can: no gate is
                green because of that.
        """
        found = self.found or _reference(self.settings, self.here, head)
        if why := _unread(found, head.run_id):
            raise ResultsError(f"--baseline={self.settings.baseline}: {why}")
        return found


def _no_gate(gate: str) -> UsageProblem:
    flag = "--gate" if gate == "auto" else f"--gate={gate}"
    return UsageProblem(
        f"{flag}: --baseline={LAST} is a single run, and two runs of the same code differ by a few "
        "percent, so nothing can be told from noise; give the name of a baseline (see gpubench "
        "baseline set), ask gpubench ab, or take the limit alone with --gate=threshold"
    )


def _run(settings: Settings, here: Path) -> Reference:
    """A single run: from its folder or file, else from the registry."""
    text = settings.baseline
    if settings.gate == "history":
        raise UsageProblem(
            f"--gate=history: --baseline={text} is a single run, and a history needs many; give "
            "the name of a baseline (see gpubench baseline set), or --gate=threshold"
        )
    try:
        with Resolver(settings.registry, settings.results_dir, here) as resolver:
            single = resolver.single(text)
    except (UsageProblem, RegistryError, ResultsError) as error:
        raise UsageProblem(f"--baseline={text}: {error}") from error
    resumed = settings.resume and find_run(settings.results_dir, settings.resume, here=here).run_id
    if resumed and single.run.run_id == resumed:
        raise UsageProblem(f"--baseline={text}: it is the very run that is to go on (--resume)")
    return single


def _unread(found: Reference, own: str) -> str:
    """Why nothing is known of its level; empty where something is, and where it pins no run.

    Later runs are no level: nobody has vouched for them, and the oldest may be a slow one.
    """
    lost = [run_id for run_id in found.pinned if run_id != own]
    read = {run.run_id for run in found.runs}
    vouched_for = any(one.pinned for run in found.runs for one in run.results.values())
    if vouched_for or not lost or not read.isdisjoint(lost):
        return ""
    none = "its pinned run cannot" if len(lost) == 1 else f"none of its {len(lost)} pinned runs can"
    anew = f"set it anew with gpubench baseline set {found.label} RUN"
    return f"{none} be read; {anew} ({'; '.join(found.notes)})"


def _reference(settings: Settings, here: Path, head: Run | None = None) -> Reference:
    with Resolver(settings.registry, settings.results_dir, here) as resolver:
        found = resolver.reference(
            settings.baseline, benchmarks=head.results if head is not None else (), head=head
        )
    if found.slip:
        raise UsageProblem(f"--baseline={settings.baseline}: {found.slip}")
    return found
