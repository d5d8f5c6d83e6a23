"""Early lookup of ``--baseline`` and its rounds, without importing database libraries.

On a CPU a benchmark's peak memory is that of this process, so database libraries are loaded only
after measuring. What a server must answer before that, a subprocess asks.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from gpubench_plugin.baselines.model import Baseline, Reference, from_text, to_text
from gpubench_plugin.baselines.resolve import Resolver, directories_of, looks_like_run
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.compare.comparability import is_same_machine
from gpubench_plugin.core.errors import GpubenchError, RegistryError, ResultsError, UsageProblem
from gpubench_plugin.core.format import grouped
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.launchers.context import STATE
from gpubench_plugin.results.reader import RunReader, median_rounds
from gpubench_plugin.results.registry.locations import is_server
from gpubench_plugin.results.run_directory import RunDirectory, find_run
from gpubench_plugin.system.child_process import ChildError, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pytest

    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.config.settings import Settings


_TIMEOUT_S: Final = 30.0
"""Connecting to a server that is down times out after 10 s; Python and its imports take 1 s."""


def _of_server(settings: Settings) -> Mapping[str, str] | None:
    """The server's answer, see :func:`subprocess_main`; None without one."""
    code = f"from {__name__} import subprocess_main; subprocess_main()"
    question = {
        "name": settings.baseline,
        "url": settings.registry,
        "results_dir": str(settings.results_dir),
    }
    # Not in its arguments: the URL may hold a password.
    command = [sys.executable, "-P", "-c", code]
    try:
        answer: Mapping[str, str] = facts_of(command, question=question, timeout_s=_TIMEOUT_S)
    except ChildError:
        return None  # asked again after measuring
    return answer


def subprocess_main() -> None:
    """Subprocess entry point: read the question from stdin, answer on stdout.

    The answer is the baseline's ``text``; if it is missing, the message, and whether it is a
    ``typo``.
    """
    from gpubench_plugin.results.registry.registry import Registry

    question = json.load(sys.stdin)
    results_dir, name = Path(question["results_dir"]), question["name"]
    with Registry.open(question["url"], results_dir) as registry:
        baselines = Baselines(results_dir, registry)
        if (baseline := baselines.get(name)) is not None:
            answer = {"text": to_text(baseline)}
        else:
            answer = {"typo": baselines.typo_message(name), "unknown": baselines.unknown(name)}
    json.dump(answer, sys.stdout)


Kind = Literal["history", "threshold", "last", "missing"]


@dataclass(frozen=True, kw_only=True)
class BaselineLookup:
    """Facts about ``--baseline`` before measuring.

    Args:
        settings: the session's.
        cwd: directory that relative paths start from.
        early_reference: the reference; None where it is looked up after measuring.
        directories: local folders of the runs that set the level, each with the only benchmark it
            counts for, or None for all; None if the baseline is missing, or a file.
        notes: lines for the header.
    """

    settings: Settings
    cwd: Path
    early_reference: Reference | None = None
    directories: tuple[tuple[RunDirectory, str | None], ...] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def look_up(cls, settings: Settings, cwd: Path) -> BaselineLookup:
        """Look up the baseline as far as that is cheap.

        Raises:
            UsageProblem: there is no such run or file, it cannot be read, a single run is to gate
                by more than a threshold, or the name is probably a typo.
        """
        text = settings.baseline
        lookup = cls(settings=settings, cwd=cwd)
        if looks_like_run(text):
            run = _run(settings, cwd)
            folders = None if run.directory is None else ((run.directory, None),)
            return replace(lookup, early_reference=run, directories=folders)
        if text == LAST:
            if settings.gate not in {"", "threshold"}:
                flag = "--gate" if settings.gate == "auto" else f"--gate={settings.gate}"
                raise UsageProblem(
                    f"{flag}: --baseline={LAST} is a single run, and two runs of the same code "
                    "differ by a few percent, so noise cannot be ruled out; use a named baseline "
                    "(see gpubench baseline set), gpubench ab, or --gate=threshold"
                )
            return lookup
        if is_server(settings.registry):
            return lookup._in_server()
        try:
            baseline = Baselines(settings.results_dir).get(text)
        except ResultsError as error:
            raise UsageProblem(f"--baseline={text}: {error}") from error
        if baseline is not None:
            return lookup._with_directories(baseline)
        reference = _reference(settings, cwd)
        return replace(lookup, early_reference=reference, notes=reference.notes)

    def _in_server(self) -> BaselineLookup:
        name = self.settings.baseline
        answer = _of_server(self.settings)
        if answer is None:
            note = f"the server of baseline {name!r} did not answer; asked again after measuring"
            return replace(self, notes=(note,))
        if typo := answer.get("typo"):
            raise UsageProblem(f"--baseline={name}: {typo}")
        if "text" in answer:
            return self._with_directories(from_text(answer["text"], "the server's answer"))
        notes = (answer["unknown"],)
        missing = Reference(label=name, kind="missing", notes=notes)
        return replace(self, early_reference=missing, notes=notes)

    def _with_directories(self, baseline: Baseline) -> BaselineLookup:
        return replace(self, directories=directories_of(baseline, self.settings.results_dir))

    @property
    def kind(self) -> Kind:
        """Kind of judgement it allows."""
        if self.early_reference is not None and self.early_reference.kind == "missing":
            return "missing"
        if self.settings.baseline == LAST:
            return "last"
        is_single = self.early_reference is not None and self.early_reference.kind == "single"
        return "threshold" if is_single or self.settings.gate == "threshold" else "history"

    def reference(self, head: Run) -> Reference:
        """The reference of `head`.

        Raises:
            UsageProblem: it no longer exists, or the name is probably a typo.
            ResultsError: it or all of its pinned runs can no longer be read; no gate passes then.
        """
        reference = self.early_reference or _reference(self.settings, self.cwd, head)
        if message := _unreadable_pins_error(reference, head.run_id):
            raise ResultsError(f"--baseline={self.settings.baseline}: {message}")
        return reference


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
            reference = resolver.single(text)
    except (UsageProblem, RegistryError, ResultsError) as error:
        raise UsageProblem(f"--baseline={text}: {error}") from error
    resumed = settings.resume and find_run(settings.results_dir, settings.resume, cwd=cwd).run_id
    if resumed and reference.run.run_id == resumed:
        raise UsageProblem(f"--baseline={text}: this is the run being resumed (--resume)")
    return reference


def _unreadable_pins_error(reference: Reference, own_id: str) -> str:
    """Error if none of its pinned runs can be read; empty otherwise.

    Later runs set no level: they were not accepted, and the oldest may be a slow one.
    """
    pinned = [run_id for run_id in reference.pinned if run_id != own_id]
    has_pinned = any(r.pinned for run in reference.runs for r in run.results.values())
    if has_pinned or not pinned or any(run.run_id in pinned for run in reference.runs):
        return ""
    several = f"none of its {len(pinned)} pinned runs can"
    subject = several if len(pinned) > 1 else "its pinned run cannot"
    advice = f"set it again with gpubench baseline set {reference.label} RUN"
    return f"{subject} be read; {advice} ({'; '.join(reference.notes)})"


def _reference(settings: Settings, cwd: Path, head: Run | None = None) -> Reference:
    with Resolver(settings.registry, settings.results_dir, cwd) as resolver:
        benchmarks = head.results if head is not None else ()
        reference = resolver.reference(settings.baseline, benchmarks=benchmarks, head=head)
    if reference.typo_hint:
        raise UsageProblem(f"--baseline={settings.baseline}: {reference.typo_hint}")
    return reference


_STOPPING_KEYS: Final = frozenset(
    f"measure.{key}"
    for key in (
        *("by", "steps", "time_s", "round_s", "rounds_file", "ci_half_width", "confidence"),
        *("min_rounds", "max_rounds", "min_time_s", "max_time_s", "keep_durations"),
    )
)
"""Keys that say how long to measure: one on the command line overrides the baseline's rounds."""


def fix_rounds(items: Iterable[pytest.Item], lookup: BaselineLookup, head: Run) -> Iterator[str]:
    """Fix the rounds of `items` to those of the baseline's runs, where known.

    Runs of a machine other than that of `head` are left out: on a slower one their rounds would
    take too long. Yields a note: of how many benchmarks, or why of none.
    """
    if lookup.directories is None:
        return
    settings = lookup.settings
    for override in settings.overrides:
        if override.partition("=")[0] in _STOPPING_KEYS:
            yield f"not using the baseline's rounds because --{override} is given"
            return
    rounds = _rounds(lookup.directories, None if settings.allow_incomparable else head)
    if rounds is None:
        yield (
            "not using the baseline's rounds: none of its runs has a local directory from this "
            "machine"
        )
        return
    states = [item.stash[STATE] for item in items]
    fixable = [
        state
        for state in states
        if state.case.fixed_rounds is None and not state.case.adopted and state.case.id in rounds
    ]
    for state in fixable:
        state.case = replace(state.case, fixed_rounds=rounds[state.case.id])
    if fixable:
        yield f"using the baseline's rounds for {len(fixable)} of {len(states)} benchmarks"


def _rounds(
    directories: Iterable[tuple[RunDirectory, str | None]], head: Run | None
) -> dict[str, FixedRounds] | None:
    """Fixed rounds by node id: the accepted run's, else the median of the pinned runs'.

    None if no run is of the machine of `head`, where that is given.
    """
    rounds_of_runs = []
    for directory, benchmark_id in directories:
        reader = RunReader(directory)
        with suppress(GpubenchError):  # reported when its numbers are read
            if head is None or is_same_machine(reader.run(), head):
                rounds_of_runs.append((benchmark_id, reader.rounds()))
    if not rounds_of_runs:
        return None
    plans = (plan for i, rounds in rounds_of_runs if i is None for plan in rounds.items())
    accepted = {i: rounds[i] for i, rounds in rounds_of_runs if i is not None and i in rounds}
    return {name: median_rounds(own) for name, own in grouped(plans).items()} | accepted
