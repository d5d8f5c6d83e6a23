"""Variants of a step that one benchmark compares: their names, first calls, and speed-ups."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from zlib import crc32

from gpubench_plugin.bench.step import (
    Comparison,
    ResultCheck,
    TimedStep,
    has_been_used,
    refuse_unfinished,
    short_repr,
)
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import CONFIDENCE, Check, Json, Observation
from gpubench_plugin.measure.loop import naming
from gpubench_plugin.measure.paired_turns import speed_ups, variant_facts

if TYPE_CHECKING:
    import torch

    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.measure.protocols import Subject
    from gpubench_plugin.ranks.agreement import RankAgreement

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
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
        if not isinstance(variants, Mapping) or len(variants) < 2:
            raise Misuse(
                f"gpubench.compare({short_repr(variants)}): allowed: a dict of two or more "
                'variants by name: {"eager": step, "compiled": other_step}; a single step is '
                "measured by gpubench(step)"
            )
        steps = {}
        for name, step in variants.items():
            _refuse_name(name)
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
    def candidate(self) -> TimedStep:
        """The last variant, whose numbers become those of the benchmark."""
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

        return TimedStep(step=call)

    def require_equal_names(self, agreement: RankAgreement) -> None:
        """Refuse ranks with other variants, or another order: the n-th of all is measured as one.

        Every rank must call it.
        """
        names = ", ".join(self.steps)
        code = float(crc32(names.encode()))
        if agreement.mean([code]) != [code]:
            raise Misuse(
                f"gpubench.compare: this rank has the variants {names}, another rank others; "
                "allowed: the same on all ranks, in the same order"
            )

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
        from gpubench_plugin.bench.equal_results import agreement, copied, random_state_kept

        results: dict[str, object] = {}
        result: object = None
        for name, timed in self.steps.items():
            steps_before = [subject.calls for subject in subjects]
            with naming(name), random_state_kept(device):
                result = run(name, timed)
            refuse_unfinished(result, timed.step, f"variant {name!r}: ")
            for subject, steps in zip(subjects, steps_before, strict=True):
                if subject.calls != steps:
                    raise _stateful(name, subject)
            # What is written in place is the next variant's by the time it is compared.
            results[name] = copied(result) if check is None else result
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
            record[-1]["no_conclusion"] = {"turns": ratio.value, "medians": ratio.by_medians}
    return (
        replace(
            candidate,
            samples=candidate.samples.flagged(*doubts),
            facts={**candidate.facts, **variant_facts(samples, faster, confidence)},
        ),
        replace(check, correctness={**check.correctness, "variants": record}),
    )


def _refuse_name(name: object) -> None:
    """Refuse a name that cannot be part of a metric's."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _RESERVED.search(name):
        raise Misuse(
            f"gpubench.compare: variant {short_repr(name)}: allowed: a name of at most 40 letters, "
            "digits and underscores that starts with no digit, and does not end as the metrics of "
            "an interval, ci_low and ci_high"
        )


def _stateful(name: str, subject: Subject) -> Misuse:
    kind = type(subject).__name__
    return Misuse(
        f"variant {name!r} takes a step of the {kind}, which would advance its state "
        "for all variants; compare plain calls, as lambda: model(batch), or measure each in a "
        "benchmark of its own, by a parameter of the test"
    )
