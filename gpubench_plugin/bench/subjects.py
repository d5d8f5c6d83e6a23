"""The running benchmark, as fixtures find it: its case, and its subjects, checks and models.

A fixture of the project with the name of one of gpubench's that returns what ours would is an
override. Anything else is the project's, and is refused where a fixture of gpubench would read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpubench_plugin.config.parametrization import DEVICE, FOREIGN_FIXTURE, overriding_fixture
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.records import Check

if TYPE_CHECKING:
    import pytest
    import torch

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.launchers.context import BenchmarkState
    from gpubench_plugin.measure.probes.tensor_memory import TensorMemory
    from gpubench_plugin.measure.protocols import Log, Subject, UntimedCheck
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.ranks.ranks import Alone


S = TypeVar("S", bound="Subject")
_KINDS: Final = {
    "data": "gpubench_plugin.training.data.base.DataSource",
    "model": "torch.nn.Module",
    "precision": "gpubench_plugin.precision.Precision",
    "process_group": "gpubench_plugin.ranks.process_group.ProcessGroup",
    "torch_device": "torch.device",
    "trainer": "gpubench_plugin.training.trainer.Trainer",
    "workload": "gpubench_plugin.workloads.Workload",
}
"""Class of the values by fixture name."""


class FirstForward:
    """Records whether `module` was called, with a hook that removes itself.

    It uses the attribute of ``torch.nn.Module.compile``, which copies, scripts and compilers of
    the module ignore: ``torch.jit.script`` refuses a module with a forward pre-hook (torch 2.13).
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._was_called = False
        module._compiled_call_impl = self._call

    def was_called(self) -> bool:
        """Whether the module was called; removes the hook."""
        if self._module._compiled_call_impl == self._call:  # else it is another hook
            self._module._compiled_call_impl = None
        return self._was_called

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        self._was_called = True
        self.was_called()
        return self._module(*args, **kwargs)


class Subjects:
    """Subjects and checks of one benchmark, in the order its fixtures were created."""

    def __init__(self) -> None:
        self._entries: list[tuple[Subject, tuple[UntimedCheck, ...]]] = []
        """Each subject with its own check and its further ones, in order."""
        self._checks: list[UntimedCheck] = []
        self._tracked: list[FirstForward] = []
        self.is_fitted = False
        """Whether a batch size was fitted, whose trials may have compiled the step."""
        self.tensor_memory: TensorMemory | None = None
        """On a CPU: created before the fixtures of the benchmark build anything."""

    def add(
        self,
        subject: S,
        *,
        before: Iterable[UntimedCheck] = (),
        after: Iterable[UntimedCheck] = (),
    ) -> S:
        """Register `subject`, once, with the checks that run right before and after its own."""
        if all(registered is not subject for registered in self.all):
            self._entries.append((subject, (*before, subject.prepare, *after)))
        return subject

    def add_check(self, check: UntimedCheck) -> None:
        """Register a check that belongs to no subject."""
        self._checks.append(check)

    def track(self, forward: FirstForward) -> None:
        """Track the first forward call of a model, which may compile."""
        self._tracked.append(forward)

    def stop_tracking(self) -> bool:
        """Whether a tracked model, or one like it, was called already; stops tracking."""
        was_called = [forward.was_called() for forward in self._tracked]  # removes every hook
        return self.is_fitted or any(was_called)

    @property
    def all(self) -> tuple[Subject, ...]:
        """All subjects, in the order in which fixtures registered them."""
        return tuple(subject for subject, _ in self._entries)

    def check(self, timed: Subject | None, log: Log) -> Check:
        """Run every check, those of the `timed` subject last, since its state is timed.

        Of the other subjects only the correctness is kept, not facts and flags.

        Raises:
            CorrectnessError: a check failed.
        """
        independent = [check(log) for check in self._checks]
        others = [parts for subject, parts in self._entries if subject is not timed]
        other_correctness = [check(log).correctness for parts in others for check in parts]
        own = [parts for subject, parts in self._entries if subject is timed]
        checks = [*independent, *(check(log) for parts in own for check in parts)]
        return Check(
            correctness=_merge((*other_correctness, *(check.correctness for check in checks))),
            facts=_merge(check.facts for check in checks),
            flags=tuple(flag for check in checks for flag in check.flags),
        )


PROCESS: Final = "_gpubench_process"
"""Fixture that keeps the state of the process, where the device's does not."""


def group_of(request: pytest.FixtureRequest) -> ProcessGroup | Alone:
    """The ranks of the benchmark: without torch one alone, on the host's CPU.

    Raises:
        Misuse: the project's fixture `torch_device` or `process_group` is of another kind.
    """
    from gpubench_plugin.launchers.context import context_of
    from gpubench_plugin.ranks.ranks import Alone

    if not case_of(request).uses_torch:
        return Alone(world=context_of(request.config).ranks.world)
    device, group = map(request.getfixturevalue, (DEVICE, "process_group"))
    require_kinds(torch_device=device, process_group=group)
    chosen: ProcessGroup = group
    return chosen


def _merge(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for mapping in mappings for key, value in mapping.items()}


def case_of(request: pytest.FixtureRequest) -> Case:
    """Case of the benchmark.

    Raises:
        Misuse: the test is not a benchmark.
    """
    return running_state(request).case


def reconfigure(
    request: pytest.FixtureRequest,
    configuration: Configuration[Any],
    facts: Mapping[str, object] | None = None,
) -> Configuration[Any]:
    """Measure and record the benchmark with `configuration` and `facts` of what was built.

    One that runs again starts anew.
    """
    state = running_state(request)
    original = state.case
    request.addfinalizer(lambda: setattr(state, "case", original))
    state.case = replace(original, configuration=configuration, facts=facts or original.facts)
    return configuration


def resolve_with_torch(request: pytest.FixtureRequest) -> None:
    """Resolve the benchmark anew, since it turned out to use torch; one that runs again does, too.

    Raises:
        UsageProblem: its configuration or device is wrong.
        BaseException: a skip, since it does not support the device.
    """
    from gpubench_plugin.launchers.context import context_of

    state, context = running_state(request), context_of(request.config)
    assert context.cases is not None  # the session has started
    state.case = context.cases.of(request.node, uses_torch=True)
    if skip := state.case.skip_reason(context.ranks.world.size):
        raise skip


def running_state(request: pytest.FixtureRequest) -> BenchmarkState:
    """State of the benchmark.

    Raises:
        Misuse: the test is not a benchmark.
    """
    from gpubench_plugin.launchers.context import state_of

    state = state_of(request.node)
    if state is None:
        remedy = "request the fixture `gpubench` or add @pytest.mark.gpubench()"
        if FOREIGN_FIXTURE in request.fixturenames:
            remedy = f"use `gpubench` instead of `{FOREIGN_FIXTURE}`, or --adopt"
        raise Misuse(f"gpubench's fixtures work only in benchmarks; {remedy}")
    return state


def subjects_of(request: pytest.FixtureRequest) -> Subjects:
    """Subjects of the benchmark, which are checked before anything is timed."""
    subjects: Subjects = request.getfixturevalue("_gpubench_subjects")
    return subjects


def require_kinds(**values: object) -> None:
    """Refuse `values` of fixtures, by name, that are not of the class that gpubench reads.

    Raises:
        Misuse: naming the fixture and its value's type.
    """
    for name, value in values.items():
        module, _, kind = _KINDS[name].rpartition(".")
        if not isinstance(value, getattr(import_module(module), kind)):
            raise _refusal(name, f"a value of type {type(value).__name__}", f"a {_KINDS[name]}")


def require_value(name: str, value: object, own: object) -> None:
    """Refuse a `value` of the fixture `name` other than gpubench's `own`, which ids are named by.

    Raises:
        Misuse: naming the fixture and its value.
    """
    if value != own:
        raise _refusal(name, repr(value), repr(own))


def is_shadowed(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether the benchmark's fixture `name` is the project's rather than gpubench's."""
    return overriding_fixture(request.node, name) is not None


def _refusal(name: str, value: str, own: str) -> Misuse:
    return Misuse(
        f"the project's fixture or parameter {name!r} has {value}, but gpubench reads {own} by "
        "that name; rename the project's"
    )
