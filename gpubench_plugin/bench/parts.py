"""What stands in a benchmark beside its step: subjects, of which one may be timed, and checks.

Models stand there as well, of which the first call matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpubench_plugin.records import Check

if TYPE_CHECKING:
    import torch

    from gpubench_plugin.measure import Log, Part, Subject
    from gpubench_plugin.measure.probes import TensorMemory

    Facts = Callable[[], Mapping[str, float]]


@dataclass(eq=False)
class _Stand:
    """A subject with itself and the checks that belong to it as `parts`, in their order."""

    subject: Subject
    parts: tuple[Part, ...]
    facts: list[Facts] = field(default_factory=list)


class FirstForward:
    """Notes the first call of `module`, and is gone from it then, or once somebody asks.

    It stands in the place that ``torch.nn.Module.compile`` uses, of which a copy of the module, a
    script of it and what compiles it know nothing. A forward pre-hook is part of all three:
    ``torch.jit.script`` refuses a module that has one (torch 2.13).
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._ran = False
        module._compiled_call_impl = self._call

    def ended(self) -> bool:
        """Whether the module has been called; from now on nothing watches it."""
        if self._module._compiled_call_impl == self._call:  # else it is somebody else's
            self._module._compiled_call_impl = None
        return self._ran

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        self._ran = True
        self.ended()
        return self._module(*args, **kwargs)


class Parts:
    """The parts of one benchmark, in whatever order its fixtures were asked for."""

    def __init__(self) -> None:
        self._stands: list[_Stand] = []
        self._checks: list[Part] = []
        self._watched: list[FirstForward] = []
        self.tensor_memory: TensorMemory | None = None
        """On a CPU: begun before the fixtures of the benchmark build anything."""

    def add(
        self, subject: Subject, *, before: Iterable[Part] = (), after: Iterable[Part] = ()
    ) -> None:
        """Let `subject` take part, with what is checked right before and right after it."""
        self._stands.append(_Stand(subject, (*before, subject, *after)))

    def include(self, subject: Subject) -> None:
        """Let `subject` take part if it does not yet: no fixture made it."""
        if all(stand.subject is not subject for stand in self._stands):
            self.add(subject)

    def add_check(self, part: Part) -> None:
        """Let something take part that belongs to no subject."""
        self._checks.append(part)

    def watch(self, forward: FirstForward) -> None:
        """Let a model take part of which the first call matters: it may compile."""
        self._watched.append(forward)

    def end_watching(self) -> bool:
        """Whether a model has been called already; nothing watches the calls that follow."""
        called = [forward.ended() for forward in self._watched]  # every one of them
        return any(called)

    def add_facts(self, subject: Subject, facts: Facts) -> None:
        """Ask for more `facts` of `subject` after its timed calls, if it is what was timed."""
        self._stand(subject).facts.append(facts)

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """All subjects."""
        return tuple(stand.subject for stand in self._stands)

    def check(self, timed: Subject | None, log: Log) -> Check:
        """Run every check, those of the `timed` subject last: what they leave is what is timed.

        What was found of the other subjects goes on record as correctness. Facts and flags are
        about what is timed, so theirs are dropped.

        Raises:
            CorrectnessError: something is wrong, whether it is timed or not.
        """
        own = None if timed is None else self._stand(timed)
        plain = [part.prepare(log) for part in self._checks]
        others = [
            part.prepare(log).correctness
            for stand in self._stands
            if stand is not own
            for part in stand.parts
        ]
        mine = [part.prepare(log) for part in (() if own is None else own.parts)]
        checks = [*plain, *mine]
        return Check(
            correctness=_merged((*others, *(check.correctness for check in checks))),
            facts=_merged(check.facts for check in checks),
            flags=tuple(flag for check in checks for flag in check.flags),
        )

    def facts(self, timed: Subject) -> dict[str, float]:
        """What is asked of the `timed` subject beside its own facts."""
        return _merged(facts() for facts in self._stand(timed).facts)

    def _stand(self, subject: Subject) -> _Stand:
        return next(stand for stand in self._stands if stand.subject is subject)


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}
