"""Early lookup of ``--baseline``, without importing database libraries.

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
    looks_like_run,
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


def typo_message(name: str, *, url: str, results_dir: Path) -> str:
    """Error message if `name` is probably a typo (:meth:`.Baselines.slip`).

    It is empty where it is none, and where nobody knows.
    """
    code = f"from {__name__} import subprocess_main; subprocess_main()"
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


def subprocess_main() -> None:
    """Subprocess entry point: read the question from stdin, answer on stdout."""
    question = json.load(sys.stdin)
    results_dir = Path(question["results_dir"])
    with Resolver(question["url"], results_dir, results_dir) as resolver:
        message = resolver.baselines().typo_message(question["name"])
    json.dump({"slip": message}, sys.stdout)


Kind = Literal["history", "threshold", "last", "missing"]


@dataclass(frozen=True, kw_only=True)
class BaselineLookup:
    """What is known of ``--baseline`` before measuring.

    Args:
        settings: the session's.
        cwd: what a relative path is seen from.
        early_reference: what it names; None where that is looked up when all is measured.
        directories: the folders here of the runs that set the level, each with the only benchmark
            that it counts for, or None; None where the baseline is none, or a file.
        is_last: it is the last comparable run, which is looked up then as well.
        notes: lines for the header.
    """

    settings: Settings
    cwd: Path
    early_reference: Reference | None
    directories: tuple[tuple[RunDirectory, str | None], ...] | None = None
    is_last: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def look_up(cls, settings: Settings, cwd: Path) -> BaselineLookup:
        """Look up the baseline as far as that is cheap.

        Raises:
            UsageProblem: there is no such run or file, it cannot be read, it is no history
                although one was asked for, or the name is likely a slip for another baseline's; or
                the last run is to gate by more than a threshold.
        """
        text = settings.baseline
        if looks_like_run(text):
            run = _run(settings, cwd)
            folders = None if run.directory is None else ((run.directory, None),)
            return cls(settings=settings, cwd=cwd, early_reference=run, directories=folders)
        try:
            baseline = Resolver("none", settings.results_dir, cwd).baselines().get(text)
        except ResultsError as error:
            raise UsageProblem(f"--baseline={text}: {error}") from error
        if baseline is not None:
            level = directories_of(baseline, settings.results_dir)
            return cls(settings=settings, cwd=cwd, early_reference=None, directories=level)
        if text == LAST:
            if settings.gate not in {"", "threshold"}:
                raise _gate_needs_history_error(settings.gate)
            return cls(settings=settings, cwd=cwd, early_reference=None, is_last=True)
        if is_expected(settings.registry, settings.results_dir):
            if typo_hint := typo_message(
                text, url=settings.registry, results_dir=settings.results_dir
            ):
                raise UsageProblem(f"--baseline={text}: {typo_hint}")
            note = f"no local baseline {text!r}; the registry is queried after measuring"
            return cls(settings=settings, cwd=cwd, early_reference=None, notes=(note,))
        early_reference = _reference(settings, cwd)
        return cls(
            settings=settings, cwd=cwd, early_reference=early_reference, notes=early_reference.notes
        )

    @property
    def kind(self) -> Kind:
        """How runs are judged by it."""
        if self.early_reference is not None and self.early_reference.kind == "missing":
            return "missing"
        if self.is_last:
            return "last"
        is_single = self.early_reference is not None and self.early_reference.kind == "single"
        return "threshold" if is_single or self.settings.gate == "threshold" else "history"

    def reference(self, head: Run) -> Reference:
        """The reference of `head`.

        Raises:
            UsageProblem: it is not there any more, or the name is likely a slip for another one's.
            ResultsError: it cannot be read any more, or none of its pinned runs can: no gate is
                green because of that.
        """
        resolved = self.early_reference or _reference(self.settings, self.cwd, head)
        if error_text := _unreadable_pins_error(resolved, head.run_id):
            raise ResultsError(f"--baseline={self.settings.baseline}: {error_text}")
        return resolved


def _gate_needs_history_error(gate: str) -> UsageProblem:
    flag = "--gate" if gate == "auto" else f"--gate={gate}"
    return UsageProblem(
        f"{flag}: --baseline={LAST} is a single run, and two runs of the same code differ by "
        "a few percent, so noise cannot be ruled out; use a named baseline (see gpubench "
        "baseline set), gpubench ab, or --gate=threshold"
    )


def _run(settings: Settings, cwd: Path) -> Reference:
    """Load a single run from its folder or file, else the registry."""
    text = settings.baseline
    if settings.gate == "history":
        raise UsageProblem(
            f"--gate=history: --baseline={text} is a single run, but a history needs several; "
            "use a named baseline (see gpubench baseline set), or --gate=threshold"
        )
    try:
        with Resolver(settings.registry, settings.results_dir, cwd) as resolver:
            single = resolver.single(text)
    except (UsageProblem, RegistryError, ResultsError) as error:
        raise UsageProblem(f"--baseline={text}: {error}") from error
    resumed = settings.resume and find_run(settings.results_dir, settings.resume, cwd=cwd).run_id
    if resumed and single.run.run_id == resumed:
        raise UsageProblem(f"--baseline={text}: this is the run being resumed (--resume)")
    return single


def _unreadable_pins_error(resolved: Reference, own_id: str) -> str:
    """Error if none of its pinned runs can be read; empty otherwise.

    Later runs are no level: nobody has vouched for them, and the oldest may be a slow one.
    """
    unread = [run_id for run_id in resolved.pinned if run_id != own_id]
    read_ids = {run.run_id for run in resolved.runs}
    vouched_for = any(r.pinned for run in resolved.runs for r in run.results.values())
    if vouched_for or not unread or not read_ids.isdisjoint(unread):
        return ""
    none_text = (
        "its pinned run cannot"
        if len(unread) == 1
        else f"none of its {len(unread)} pinned runs can"
    )
    advice = f"set it again with gpubench baseline set {resolved.label} RUN"
    return f"{none_text} be read; {advice} ({'; '.join(resolved.notes)})"


def _reference(settings: Settings, cwd: Path, head: Run | None = None) -> Reference:
    with Resolver(settings.registry, settings.results_dir, cwd) as resolver:
        resolved = resolver.reference(
            settings.baseline, benchmarks=head.results if head is not None else (), head=head
        )
    if resolved.typo_hint:
        raise UsageProblem(f"--baseline={settings.baseline}: {resolved.typo_hint}")
    return resolved
