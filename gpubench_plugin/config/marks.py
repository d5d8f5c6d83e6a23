"""Validated benchmark marks, and the variants a benchmark is parametrized by.

Suites of this project and of others use the variants::

    from gpubench_plugin.config.marks import training_variants

    @training_variants
    @pytest.mark.gpubench(config="llama", ranks="any")
    def test_llama_train(gpubench, trainer, variant):
        gpubench(trainer)

has the cases ``test_llama_train[fp32]``, ``test_llama_train[compiled-fp32]`` and so on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import pytest

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem, invalid_choice
from gpubench_plugin.core.format import counted

Ranks = int | tuple[int, ...] | str

_MOST_RANKS = 999_999
"""More than any machine has, and few enough for what counts them."""

Timing = Literal["step", "kernel"]
"""``step``: calls as they follow each other; ``kernel``: without the time of launching them."""

Preset = Literal["tiny", "full"]


@dataclass(frozen=True, kw_only=True)
class BenchmarkMark:
    """The arguments of ``pytest.mark.gpubench``.

    `timing` is how a CUDA device is timed unless ``measure.timing`` says it. It is measured with
    the preset `preset` only, None for any. `needs_memory_gib` is the device memory that it needs in
    precisions that compute in 32 bits; in 16 bits it needs half. With ``--on`` an `exclusive` one
    runs with nothing else on its host; None decides by its device and data.
    """

    config: str | None = None
    ranks: Ranks = 1
    limits: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    timing: Timing = "step"
    preset: Preset | None = None
    needs_memory_gib: float | None = None
    exclusive: bool | None = None

    @classmethod
    def of(cls, node: pytest.Item) -> BenchmarkMark:
        """The closest mark of `node`, or the default one; marks of its parameters override it.

        Raises:
            UsageProblem: an argument is unknown or of the wrong type.
        """
        own_marks, of_parameters = _marks(node, "gpubench")
        label = f"{node.nodeid}: mark gpubench"
        keywords: dict[str, Any] = {}
        for mark in (*own_marks[:1], *of_parameters):
            if mark.args:
                raise UsageProblem(f"{label}: takes keyword arguments only, got {mark.args!r}")
            keywords.update(mark.kwargs)
        allowed = [f.name for f in fields(cls)]
        for name in keywords:
            if name not in allowed:
                raise invalid_choice(label, name, allowed, noun="argument ")
        result = cls(**{k: v for k, v in keywords.items() if v is not None})
        result._check(label)
        return result

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """World sizes to use by default: all that it names, else the smallest allowed."""
        if isinstance(self.ranks, str):
            return (self._smallest,)
        return (self.ranks,) if isinstance(self.ranks, int) else self.ranks

    def allows(self, world_size: int) -> bool:
        """Whether the benchmark runs on that many ranks."""
        if isinstance(self.ranks, str):
            return world_size >= self._smallest
        return world_size in self.world_sizes

    @property
    def needed_ranks(self) -> str:
        """Ranks that it runs on, in words: ``needs 2 ranks or more: --world-size=2``."""
        if isinstance(self.ranks, str):
            return f"needs {counted(self._smallest, 'rank')} or more: --world-size={self._smallest}"
        sizes = [*map(str, self.world_sizes)]
        number = " or ".join(filter(None, [", ".join(sizes[:-1]), sizes[-1]]))
        noun = "rank" if sizes == ["1"] else "ranks"
        return f"runs on {number} {noun} only: --world-size={','.join(sizes)}"

    @property
    def _smallest(self) -> int:
        """Smallest world size allowed by 'any' or '>=N'."""
        return 1 if self.ranks == "any" else max(1, int(str(self.ranks).removeprefix(">=")))

    def _check(self, label: str) -> None:
        checks = {
            "ranks": (_is_ranks(self.ranks), "an int from 1, a tuple of them, 'any' or '>=N'"),
            "config": (isinstance(self.config, str | None), "a configuration's name"),
            "limits": (_is_limits(self.limits), "{metric: limit}"),
            "timeout_s": (_is_positive(self.timeout_s), "seconds above 0"),
            "preset": (self.preset in (None, *get_args(Preset)), "tiny, full"),
            "needs_memory_gib": (_is_positive(self.needs_memory_gib), "GiB above 0"),
            "exclusive": (isinstance(self.exclusive, bool | None), "True, False"),
        }
        for name, (is_valid, allowed) in checks.items():
            if not is_valid:
                raise UsageProblem(f"{label}: {name}={getattr(self, name)!r}; allowed: {allowed}")
        if self.timing not in get_args(Timing):
            raise invalid_choice(label, str(self.timing), get_args(Timing), noun="timing ")


def _marks(node: pytest.Item, name: str) -> tuple[list[pytest.Mark], list[pytest.Mark]]:
    """Marks of `node` with that name, closest first, and those on its parameters.

    ``iter_markers`` yields the latter after the function's, although they are closer to the case.
    """
    callspec = getattr(node, "callspec", None)
    of_parameters = [mark for mark in getattr(callspec, "marks", ()) if mark.name == name]
    ids = set(map(id, of_parameters))
    return [mark for mark in node.iter_markers(name) if id(mark) not in ids], of_parameters


def assignments(node: pytest.Item) -> tuple[str, ...]:
    """Assignments of the ``gpubench_set`` marks, outermost first, parameters last.

    Raises:
        UsageProblem: an argument is no text of the form ``key=value``.
    """
    own_marks, of_parameters = _marks(node, "gpubench_set")
    marks = (*own_marks[::-1], *of_parameters)
    for mark in marks:
        wrong = [f"{name}={value!r}" for name, value in mark.kwargs.items()]
        wrong += [repr(a) for a in mark.args if not isinstance(a, str) or "=" not in a]
        if wrong:
            raise UsageProblem(
                f"{node.nodeid}: mark gpubench_set takes texts of the form 'key=value' only, got "
                f"{', '.join(wrong)}"
            )
    return tuple(argument for mark in marks for argument in mark.args)


def full_profile_only(node: pytest.Item, precision: str) -> bool:
    """Whether a ``gpubench_full`` mark restricts `precision` to the full profile."""
    return any(
        not mark.args or precision in mark.args for mark in node.iter_markers("gpubench_full")
    )


def check_precisions(node: pytest.Item, allowed: Iterable[str]) -> None:
    """Refuse a ``precision`` or ``gpubench_full`` mark with an unknown precision.

    Raises:
        UsageProblem: naming the mark, the value and what is allowed.
    """
    for mark in (*node.iter_markers("precision"), *node.iter_markers("gpubench_full")):
        label = f"{node.nodeid}: mark {mark.name}"
        for name in mark.args:
            if name not in allowed:
                words = catalog.aliases("precision")
                raise invalid_choice(label, str(name), allowed, aliases=words)
        if mark.kwargs or (mark.name == "precision" and not mark.args):
            raise UsageProblem(f"{label} accepts only precision names")


def _is_positive(value: object) -> bool:
    """Whether it is a finite number above 0, or None."""
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_limits(limits: object) -> bool:
    return isinstance(limits, Mapping) and all(isinstance(name, str) for name in limits)


def _is_ranks(ranks: object) -> bool:
    if isinstance(ranks, tuple):
        return bool(ranks) and all(isinstance(n, int) and _is_ranks(n) for n in ranks)
    if isinstance(ranks, str):
        return ranks == "any" or re.fullmatch(r">=\d{1,6}", ranks, re.ASCII) is not None
    return isinstance(ranks, int) and not isinstance(ranks, bool) and 1 <= ranks <= _MOST_RANKS


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to run a benchmark.

    `name` is part of the node id, unless it is empty. `assignments` are ``key=value`` of the
    configuration. On a CPU, a `full` variant is measured with ``--measure.profile=full`` only: in
    the named precisions or, if True, in all. `ranks`, `preset` and `needs_memory_gib` are arguments
    of the mark ``gpubench``, None for what the function's mark states.
    """

    name: str
    assignments: tuple[str, ...] = ()
    full: bool | tuple[str, ...] = False
    ranks: Ranks | None = None
    preset: Preset | None = None
    needs_memory_gib: float | None = None

    def __and__(self, other: Variant) -> Variant:
        """Combine two variants: names joined, `other` wins."""
        both = self.full, other.full
        named = (name for full in both if isinstance(full, tuple) for name in full)
        return Variant(
            name="-".join(name for name in (self.name, other.name) if name),
            assignments=(*self.assignments, *other.assignments),
            full=True in both or (*named,),
            ranks=other.ranks or self.ranks,
            preset=other.preset or self.preset,
            needs_memory_gib=other.needs_memory_gib or self.needs_memory_gib,
        )

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """The variant as marks of a parameter."""
        decorators: list[pytest.MarkDecorator] = []
        if self.assignments:
            decorators.append(pytest.mark.gpubench_set(*self.assignments))
        if self.full:
            precisions = () if isinstance(self.full, bool) else self.full
            decorators.append(pytest.mark.gpubench_full(*precisions))
        names = ("ranks", "preset", "needs_memory_gib")
        arguments = {n: value for n in names if (value := getattr(self, n)) is not None}
        if arguments:
            decorators.append(pytest.mark.gpubench(**arguments))
        return tuple(decorators)


def param_variants(*variants: Variant, argument: str = "variant") -> pytest.MarkDecorator:
    """Parametrize mark with one case per variant, passed as `argument`."""
    cases: list[Any] = [
        pytest.param(v.name or "plain", id=v.name or pytest.HIDDEN_PARAM, marks=v.marks)
        for v in variants
    ]
    return pytest.mark.parametrize(argument, cases)


_16_BITS = ("amp", "bf16", "bf16-true", "fp16-true")
"""Left out of quick runs on a CPU, which measure fp32."""

PLAIN = Variant(name="")
CHANNELS_LAST = Variant(name="channels_last", assignments=("model.channels_last=true",))
CONTIGUOUS = Variant(name="contiguous", assignments=("model.channels_last=false",))
COMPILED = Variant(name="compiled", assignments=("model.compile=default",), full=True)
ACCUMULATED = Variant(name="accumulated", assignments=("training.accumulation_steps=2",), full=True)
CHECKPOINTED = Variant(
    name="checkpointed", assignments=("model.activation_checkpointing=true",), full=True
)
FSDP2 = Variant(
    name="fsdp2", assignments=("distributed.parallelism=fsdp2",), full=_16_BITS, ranks=">=2"
)
ONE_SAMPLE = Variant(name="b1", assignments=("inference.batch_size=1",))
SOME_SAMPLES = Variant(name="b32", assignments=("inference.batch_size=32",))
MOST_SAMPLES = Variant(name="bmax", assignments=("inference.batch_size=max",))
FULL = Variant(name="", full=True)
"""Only sets `full`, to be combined with another variant."""

batch_sizes = param_variants(ONE_SAMPLE, SOME_SAMPLES, MOST_SAMPLES, argument="batch")
"""One sample for latency, some, and as many as ``inference.largest_batch_size`` for throughput."""

caches = pytest.mark.parametrize(
    "cache",
    [
        pytest.param("hot", id=pytest.HIDDEN_PARAM),
        pytest.param("cold", marks=pytest.mark.gpubench_set("measure.cache=cold")),
    ],
)
"""A single operation whose data are in the L2 cache as the call before left it, and overwritten
before every call. The latter needs ``measure.timing=kernel``, so a CUDA device."""

TRAINING = (PLAIN, COMPILED, ACCUMULATED, CHECKPOINTED, FSDP2 & FULL)
"""All ways to train a model that supports activation checkpointing."""

training_variants = param_variants(*TRAINING)
"""The same as a mark."""

CONVOLUTIONAL_TRAINING = (
    CHANNELS_LAST,
    CONTIGUOUS & FULL,
    CHANNELS_LAST & COMPILED,
    CHANNELS_LAST & ACCUMULATED,
    Variant(name="", assignments=CONTIGUOUS.assignments) & FSDP2 & FULL,
)
"""All ways to train a convolutional network, which FSDP2 supports in contiguous format only."""

convolutional_training_variants = param_variants(*CONVOLUTIONAL_TRAINING)
"""The same as a mark."""
