"""Variants of a step that one benchmark compares: their names, first calls, and agreement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import torch
from torch.testing import assert_close

from gpubench_plugin.bench.step import TimedStep, has_been_used, refuse_unfinished, short_repr
from gpubench_plugin.core.errors import CorrectnessError, Misuse, error_text
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import CONFIDENCE, Check, Json, Observation
from gpubench_plugin.measure.loop import naming
from gpubench_plugin.measure.paired_turns import speed_ups, variant_facts
from gpubench_plugin.precision._nested import values_of

if TYPE_CHECKING:
    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.measure.protocols import Subject

ResultCheck: TypeAlias = Callable[[dict[str, Any]], object] | bool | None
"""``None``: the results are equal or close; ``False``: unchecked; else a function of the results by
name, which raises or returns False where they disagree, and else returns None or True."""

Comparison: TypeAlias = Literal["check", "close", "unchecked"]
"""How results that agree were compared: by a ``check``, as ``close``, or not at all."""

_TEXTS: Final = (str, bytes, bytearray, memoryview, range)
"""Sequences that are compared as a whole."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
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
        if not isinstance(variants, Mapping) or len(variants) < 2:
            raise Misuse(
                f"gpubench.compare({short_repr(variants)}): allowed: a dict of two or more "
                'variants by name: {"eager": step, "compiled": other_step}; a single step is '
                "measured by gpubench(step)"
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


@contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    """Put torch's random states back afterwards, so that the next variant starts from the same."""
    devices = [device] if device.type in _SEEDED else []
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        yield


def agreement(results: Mapping[str, object], check: ResultCheck) -> Comparison:
    """Compare copies of the `results`, see :func:`copied`, with the first one.

    Numbers and tensors are compared by :func:`torch.testing.assert_close`, with the tolerances of
    their types, of two types the wider ones; all other values must be equal. Where there are none,
    as the variants return None or tensors without elements, nothing is compared.

    Raises:
        CorrectnessError: a variant disagrees, and where and by how much; or no number is finite.
        Misuse: `check` is or returns something else, or there is no telling whether values are
            equal.
    """
    if check is False:
        return "unchecked"
    if callable(check):
        _call(check, dict(results))
        return "check"
    if check is not None:
        raise Misuse(
            f"gpubench.compare(…, check={short_repr(check)}); allowed: None, False, "
            "or a function of the results by name"
        )
    leaves = {name: dict(_leaves(result)) for name, result in results.items()}
    (reference, expected), *others = leaves.items()
    for name, actual in others:
        _compare(name, actual, reference, expected)
    values = [value for of_variant in leaves.values() for value in of_variant.values()]
    values = [v for v in values if v is not None and (not isinstance(v, torch.Tensor) or v.numel())]
    if not values:
        return "unchecked"
    if not any(_tells(value) for value in values):
        raise CorrectnessError(
            f"the results of {_listed(results)} are NaN or infinite everywhere, which does not "
            "show that they agree; check=False leaves them unchecked"
        )
    return "close"


def copied(result: object) -> object:
    """Copy of a nested `result`: numbers and arrays become tensors, containers dicts and lists."""
    if is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    match result:
        case torch.Tensor():
            return result.detach().clone()
        case np.ndarray() | np.generic() | int() | float() | complex():
            wide = {float: torch.float64, complex: torch.complex128}  # Python's precision
            try:
                return torch.tensor(result, dtype=wide.get(type(result)))
            except (TypeError, ValueError, RuntimeError):  # texts, long doubles, 2**63 and above
                return copied(result.tolist()) if isinstance(result, np.ndarray) else result
        case Mapping():
            return {key: copied(value) for key, value in result.items()}
        case Sequence() if not isinstance(result, _TEXTS):
            return [copied(value) for value in result]
    return result


def _call(check: Callable[[dict[str, Any]], object], results: dict[str, Any]) -> None:
    try:
        verdict = check(results)
    except AssertionError as error:
        reason = " ".join(error_text(error).split())
        raise CorrectnessError(
            f"the results of {_listed(results)} disagree: {reason or 'check raised'}"
        ) from error
    value = copied(verdict)  # of a bool of Python, numpy or torch a tensor
    if value is None:
        return
    if not isinstance(value, torch.Tensor) or value.dtype != torch.bool or value.ndim:
        raise Misuse(  # its truth says nothing, as that of a difference
            f"gpubench.compare: check returned {short_repr(verdict)}; allowed: True, False, or None"
        )
    if not value:
        raise CorrectnessError(f"the results of {_listed(results)} disagree: check returned False")


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names))


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, Any]]:
    """Values of a copied result that are no containers, with their places."""
    match value:
        case dict() | list():
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            for key, part in parts:
                yield from _leaves(part, f"{place}[{key!r}]")
        case _:
            yield place, value


def _compare(
    variant: str, actual: Mapping[str, Any], reference: str, expected: Mapping[str, Any]
) -> None:
    """Compare the values of two results by their places."""
    reasons = {place: "is missing" for place in expected if place not in actual}
    reasons |= {place: "is not in the other" for place in actual if place not in expected}
    for place, value in () if reasons else expected.items():
        if reason := _difference(actual[place], value, f"variant {variant!r}, result{place}"):
            reasons[place] = reason
            break
    for place, reason in reasons.items():
        at = f" at result{place}" if place else ""
        raise CorrectnessError(f"variant {variant!r} disagrees with {reference!r}{at}: {reason}")


def _difference(actual: Any, expected: Any, where: str) -> str:
    """How two values differ, in one line; empty if they agree.

    Raises:
        Misuse: there is no telling.
    """
    kinds = type(actual).__name__, type(expected).__name__
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        if actual.is_meta or expected.is_meta:
            raise _cannot_compare(where, "meta tensors, which have no data")
        try:
            assert_close(
                actual,
                expected,
                equal_nan=True,
                check_device=False,
                check_dtype=False,
                check_layout=False,
            )
        except AssertionError as error:
            lines = (line.strip().rstrip(".!") for line in error_text(error).splitlines())
            return "; ".join(filter(None, lines))
        except RuntimeError as error:  # types that torch cannot compare, as of 8 bits with 32
            raise _cannot_compare(where, f"{actual.dtype} with {expected.dtype}") from error
        return ""
    if type(actual) is not type(expected):
        return f"{kinds[0]} instead of {kinds[1]}"
    if actual is expected:
        return ""
    if vars(object)["__eq__"] is not type(actual).__eq__:
        with suppress(Exception):  # whatever an object's own comparison raises, or returns
            return "" if actual == expected else "the values differ"
    raise _cannot_compare(where, f"two objects of {kinds[0]}")


def _cannot_compare(where: str, what: str) -> Misuse:
    return Misuse(
        f"{where}: cannot compare {what}; return tensors or numbers of equal types, or pass "
        "gpubench.compare(…, check=…) a function of the results by name"
    )


def _tells(value: Any) -> bool:
    """Whether a value is, or has, anything but numbers that are NaN or infinite."""
    if not isinstance(value, torch.Tensor):
        return True
    return bool(torch.isfinite(values_of(value)).any())
