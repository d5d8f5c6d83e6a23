"""The variants that a benchmark is measured in, as marks: for suites of this project and of others.

::

    from gpubench_plugin.config.variants import training_variants

    @training_variants
    @pytest.mark.gpubench(config="llama", ranks="any")
    def test_llama_train(gpubench, trainer, variant):
        gpubench(trainer.step, samples=trainer.samples_per_step)

has the cases ``test_llama_train[fp32-ws1]``, ``test_llama_train[compiled-fp32-ws1]`` and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpubench_plugin.config.marks import Ranks


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to run a benchmark.

    `name` stands in the node id, unless it is empty. `assignments` are ``key=value`` of the
    configuration. One that is `full` is measured on a CPU with ``--measure.profile=full`` only, in
    the precisions named there or, if True, in all. `ranks` are the world sizes it runs on, None for
    those of the mark ``gpubench``.
    """

    name: str
    assignments: tuple[str, ...] = ()
    full: bool | tuple[str, ...] = False
    ranks: Ranks | None = None

    def __and__(self, other: Variant) -> Variant:
        """Both at once: the names joined, and of what both say the `other`'s."""
        return Variant(
            name="-".join(name for name in (self.name, other.name) if name),
            assignments=(*self.assignments, *other.assignments),
            full=_either(self.full, other.full),
            ranks=other.ranks or self.ranks,
        )

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """What it says, as marks of a parameter."""
        found: list[pytest.MarkDecorator] = []
        if self.assignments:
            found.append(pytest.mark.gpubench_set(*self.assignments))
        if self.full:
            precisions = () if isinstance(self.full, bool) else self.full
            found.append(pytest.mark.gpubench_full(*precisions))
        if self.ranks is not None:
            found.append(pytest.mark.gpubench(ranks=self.ranks))
        return tuple(found)


def _either(one: bool | tuple[str, ...], other: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
    """When either of two variants is full."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return (*one, *other)
    return one is True or other is True or one or other


def over(*variants: Variant, argument: str = "variant") -> pytest.MarkDecorator:
    """The mark that gives a benchmark one case for each of `variants`, as its `argument`."""
    cases: list[Any] = [
        pytest.param(
            variant.name or "plain",
            id=variant.name or pytest.HIDDEN_PARAM,
            marks=variant.marks,
        )
        for variant in variants
    ]
    return pytest.mark.parametrize(argument, cases)


_16_BITS = ("amp", "bf16", "bf16-true", "fp16-true")
"""Where there is no time for all precisions, a CPU measures fp32."""

PLAIN = Variant(name="")
CHANNELS_LAST = Variant(name="channels_last", assignments=("model.channels_last=true",))
CONTIGUOUS = Variant(name="contiguous", assignments=("model.channels_last=false",))
COMPILED = Variant(name="compiled", assignments=("model.compile=default",), full=True)
ACCUMULATED = Variant(name="accumulated", assignments=("training.accumulation_steps=2",), full=True)
CHECKPOINTED = Variant(
    name="checkpointed", assignments=("model.activation_checkpointing=true",), full=True
)
FSDP2 = Variant(
    name="fsdp2",
    assignments=("distributed.parallelism=fsdp2",),
    full=_16_BITS,
    ranks=">=2",
)
EAGER = Variant(name="eager")
REDUCE_OVERHEAD = Variant(
    name="reduce-overhead", assignments=("model.compile=reduce-overhead",), full=True
)
ONE_SAMPLE = Variant(name="b1", assignments=("inference.batch_size=1",))
SOME_SAMPLES = Variant(name="b32", assignments=("inference.batch_size=32",))
MOST_SAMPLES = Variant(name="bmax", assignments=("inference.batch_size=max",))
FULL = Variant(name="", full=True)
"""Nothing but `full`, to be combined with another."""

batch_sizes = over(ONE_SAMPLE, SOME_SAMPLES, MOST_SAMPLES, argument="batch")
"""One sample for latency, some, and as many as ``inference.largest_batch_size`` for throughput."""

executions = over(EAGER, REDUCE_OVERHEAD, argument="execution")
"""Operation by operation, and compiled with little overhead: on CUDA as a captured graph."""

memory_formats = over(CHANNELS_LAST, CONTIGUOUS, argument="memory_format")
"""Both layouts of images and of the weights of convolutions."""

training_variants = over(PLAIN, COMPILED, ACCUMULATED, CHECKPOINTED, FSDP2)
"""All ways to train a model that can compute activations again."""

convolutional_training_variants = over(
    CHANNELS_LAST,
    # 16 bits take a CPU longer there than in channels_last, fp16 far longer.
    CONTIGUOUS & Variant(name="", full=_16_BITS),
    CHANNELS_LAST & COMPILED,
    CHANNELS_LAST & ACCUMULATED,
    Variant(name="", assignments=CONTIGUOUS.assignments) & FSDP2,
)
"""All ways to train a network of convolutions, which FSDP2 takes in the contiguous layout only."""
