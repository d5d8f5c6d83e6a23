"""Variants of a step that one benchmark compares: their names and steps, and their first calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.bench.agreement import agreement, copied
from gpubench_plugin.bench.misuse import short_repr
from gpubench_plugin.bench.step import TimedStep, has_been_used, refuse_unfinished
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.events import TurnsEvent
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import CONFIDENCE
from gpubench_plugin.measure.loop import naming
from gpubench_plugin.measure.paired_turns import speed_ups, turns_s, variant_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from gpubench_plugin.bench.agreement import Comparison, ResultCheck
    from gpubench_plugin.core.records import Check, Json, Observation, Samples
    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.measure.protocols import Subject

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_NAME_CHARS: Final = 40
_SEEDED: Final = ("cuda", "xpu")
"""Device types whose generators torch saves by device; MPS has a single one."""
_RESERVED: Final = re.compile(r"(?:^|_)ci_(?:low|high)$")
"""Endings of the metrics of an interval, which have the names of variants in them."""


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Steps by name, in the user's order: the first is the reference, the last the candidate."""

    steps: Mapping[str, TimedStep]

    @classmethod
    def of(cls, variants: object, *, setup: Step | None, teardown: Step | None) -> Variants:
        """Resolve what ``gpubench.compare`` was given.

        Raises:
            Misuse: it is no mapping of two or more names to callables, or one of them is a
                subject.
        """
        if not isinstance(variants, Mapping):
            raise Misuse(
                f"gpubench.compare({short_repr(variants)}): allowed: a dict of two or "
                'more variants by name: {"eager": step, "compiled": other_step}'
            )
        if len(variants) < 2:
            raise Misuse(
                f"gpubench.compare was given {len(variants)} of at least 2 variants; "
                "a single step is measured by gpubench(step)"
            )
        steps = {}
        for name, step in variants.items():
            _refuse_name(name)
            if not callable(step) and not hasattr(step, "flops_step"):
                raise Misuse(
                    f"variant {name!r}: {short_repr(step)} is not callable; pass the "
                    "step itself, not the result of calling it: lambda: model(batch)"
                )
            timed = TimedStep.of(step, setup=setup, teardown=teardown)
            if timed.subject is not None:
                raise _stateful(name, timed.subject)
            steps[name] = timed
        return cls(steps=steps)

    @classmethod
    def single(cls, timed: TimedStep) -> Variants:
        """A step that is compared with no other; it has no name."""
        return cls(steps={"": timed})

    @property
    def is_single(self) -> bool:
        """Whether there is nothing to compare."""
        return len(self.steps) == 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names in order."""
        return tuple(self.steps)

    @property
    def candidate(self) -> TimedStep:
        """The last variant."""
        return [*self.steps.values()][-1]

    @property
    def have_been_used(self) -> bool:
        """Whether a variant calls what took steps before, and so has compiled and allocated."""
        return any(map(has_been_used, self.steps.values()))

    @property
    def together(self) -> TimedStep:
        """All variants, one after the other, as one step."""
        if self.is_single:
            return self.candidate

        def call() -> None:
            for timed in self.steps.values():
                timed.run()

        return TimedStep(call=call, subject=None, setup=None, teardown=None)

    def compare_results(
        self,
        run: Callable[[str, TimedStep], object],
        *,
        device: torch.device,
        subjects: Sequence[Subject],
        check: ResultCheck,
    ) -> tuple[object, Comparison]:
        """Run each variant once, by `run`; return the candidate's result and how all agree.

        All variants start from the same state of torch's random generators.

        Raises:
            Misuse: a result is still to be run or called or cannot be compared, or a variant
                took a step of one of the `subjects`.
            CorrectnessError: the results disagree.
        """
        results: dict[str, object] = {}
        result: object = None
        for name, timed in self.steps.items():
            steps_before = [subject.calls for subject in subjects]
            with naming(name), _random_state_kept(device):
                result = run(name, timed)
            refuse_unfinished(result, timed.call, f"variant {name!r}: ")
            for subject, steps in zip(subjects, steps_before, strict=True):
                if subject.calls != steps:
                    raise _stateful(name, subject)
            # What is written in place is the next variant's by the time it is compared.
            results[name] = result if callable(check) else copied(result)
        return result, agreement(results, check)


def with_variants(
    observations: Mapping[str, Observation], check: Check
) -> tuple[Observation, Check]:
    """Observation of the candidate with the step times and speed-ups of all variants.

    It is in doubt where one of them is, whose flags go into the `check`. The only observation of a
    single step stays as it is.
    """
    *_, candidate = observations.values()
    if len(observations) == 1:
        return candidate, check
    samples = {name: observation.samples for name, observation in observations.items()}
    doubts = [flag for of_variant in samples.values() for flag in doubtful_flags(of_variant.flags)]
    confidence = candidate.facts.get("confidence", CONFIDENCE)
    faster = speed_ups(samples, confidence)
    record: list[Json] = []
    for name, of_variant in samples.items():
        record.append({"name": name, "flags": list(of_variant.flags)})
        if name in faster and not (ratio := faster[name]).is_conclusive:
            ratios = {"turns": ratio.value, "medians": ratio.by_medians}
            record[-1]["no_conclusion"] = ratios
    return (
        replace(
            candidate,
            samples=candidate.samples.flagged(*doubts),
            facts={**candidate.facts, **variant_facts(samples, faster, confidence)},
        ),
        replace(check, correctness={**check.correctness, "variants": record}),
    )


def turns_event(samples: Mapping[str, Samples]) -> Json:
    """Journal event with the mean seconds per call of each turn of this rank, by variant."""
    turns = {name: tuple(turns_s(s)) for name, s in samples.items()}
    return TurnsEvent(step_s=turns).line()


def _refuse_name(name: object) -> None:
    """Refuse a name that cannot be part of a metric's."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MAX_NAME_CHARS:
        raise Misuse(
            f"gpubench.compare: variant {short_repr(name)}: allowed: a name of "
            f"letters, digits and underscores, at most {_MAX_NAME_CHARS}, that starts with no digit"
        )
    if _RESERVED.search(name):
        raise Misuse(
            f"gpubench.compare: variant {name!r}: names of metrics of intervals end "
            "like this; choose another name"
        )


def _stateful(name: str, subject: Subject) -> Misuse:
    kind = type(subject).__name__
    return Misuse(
        f"variant {name!r} takes a step of the {kind}, which would advance its state "
        "for all variants; compare plain calls, as lambda: model(batch), or measure each in a "
        "benchmark of its own, by a parameter of the test"
    )


@contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    """Put torch's random states back afterwards, so that the next variant starts from the same."""
    import torch

    devices = [device] if device.type in _SEEDED else []
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        yield
