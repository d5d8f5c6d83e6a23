"""Events inside a benchmark, as their producers make them and the journal has them.

A new event is a class here, made where it happens, and listed in ``docs/schemas``: the journal's
schema, which adds what every line has, follows from these classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from gpubench_plugin.core.records import Json, Phase, doc


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a benchmark.

    `kind` is its name in the journal, after its class: ``training_step`` of `TrainingStepEvent`.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        words = re.findall("[A-Z][a-z]+", cls.__name__.removesuffix("Event"))
        cls.kind = "_".join(words).lower()

    def line(self) -> Json:
        """The event as its line begins, without fields at their defaults."""
        stated = {
            f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default
        }
        return {"event": self.kind, **stated}


@dataclass(frozen=True, kw_only=True)
class PhaseEvent(Event):
    """Start of a phase; ``build`` starts another try of the benchmark if there was one."""

    phase: Phase
    steps: int | None = field(default=None, metadata=doc("Of ``train``: its last step", ge=1))
    node: str = field(default="", metadata=doc("Of a shard: where it runs"))


@dataclass(frozen=True, kw_only=True)
class ProgressEvent(Event):
    """Measurement so far, between two timed blocks, at most once a second.

    Each rank is taken to do the work of rank zero.
    """

    rounds: int = field(metadata={"ge": 0})
    calls: int = field(metadata=doc("Timed calls", ge=0))
    half_width: float | None = field(metadata=doc("Relative, of the median's interval"))
    step_s: float = field(metadata=doc("Seconds per call: the median of the last 50 rounds"))
    samples_per_s: float | None = field(default=None, metadata=doc("Of all ranks"))
    tokens_per_s: float | None = field(default=None, metadata=doc("As samples_per_s"))
    elapsed_s: float = field(metadata=doc("Seconds since the timed calls began", ge=0))
    remaining_s: float | None = field(metadata=doc("Estimate; null before the first check"))


@dataclass(frozen=True, kw_only=True)
class TrainingStepEvent(Event):
    """One step of the untimed training, logged every ``training.log_every`` steps.

    Skipped steps are counted from the start; the rate is that since the line before. Without
    clipping there is no norm of the gradients.
    """

    step: int = field(metadata={"ge": 0})
    loss: float | None = field(metadata=doc("Mean over the ranks of the step's last batch"))
    learning_rate: float | None = field(default=None, metadata=doc("Of the next step"))
    skipped_steps: int | None = field(default=None, metadata=doc("By the GradScaler", ge=0))
    loss_scale: float | None = field(default=None, metadata=doc("Of the GradScaler"))
    gradient_norm: float | None = field(default=None, metadata=doc("Before clipping"))
    samples_per_s: float | None = field(default=None, metadata=doc("Of all ranks"))


@dataclass(frozen=True, kw_only=True)
class EpochEvent(Event):
    """One pass of the untimed training over the data; means over the batches of all ranks."""

    epoch: int = field(metadata=doc("Number from 1", ge=1))
    step: int = field(metadata=doc("The step that completed it", ge=1))
    loss: float | None
    accuracy: float | None = field(default=None, metadata=doc("On training samples"))
    test_loss: float | None = field(default=None, metadata=doc("On held-out samples, at its end"))
    test_accuracy: float | None = None
    samples: int = field(metadata=doc("Of all ranks", ge=1))
    duration_s: float = field(metadata=doc("Without evaluations", ge=0))
    samples_per_s: float


@dataclass(frozen=True, kw_only=True)
class FlopsEvent(Event):
    """FLOP count of one call."""

    per_call: float | None = field(metadata=doc("Null if the operations cannot be counted"))
    uncounted_ops: tuple[str, ...] | Mapping[str, Any] = field(
        default=(), metadata=doc("Operations without a formula")
    )
    reason: str = field(default="", metadata=doc("Why they cannot be counted"))


@dataclass(frozen=True, kw_only=True)
class TrafficEvent(Event):
    """Control traffic between the ranks during a measurement."""

    bytes_read: int = field(metadata={"ge": 0})
    bytes_written: int = field(metadata={"ge": 0})


@dataclass(frozen=True, kw_only=True)
class LogEvent(Event):
    """A point of the user's own curves: what ``gpubench.log`` was given."""

    step: int = field(metadata=doc("The user's", ge=0))
    metrics: Mapping[str, float | None] = field(metadata={"min_length": 1})


@dataclass(frozen=True, kw_only=True)
class EvaluationEvent(Event):
    """An evaluation on held-out samples, of all ranks; after an untimed training without step."""

    step: int | None = field(default=None, metadata=doc("On the way to a target", ge=1))
    is_best: bool | None = field(default=None, metadata=doc("The best so far, for the target"))
    test_loss: float | None
    test_accuracy: float | None = None


@dataclass(frozen=True, kw_only=True)
class ConvergenceEvent(Event):
    """A target that was reached, and how near its training in another precision is to fp32."""

    target: str = field(metadata=doc("The key and its value"))
    step: int = field(metadata={"ge": 1})
    parity_error: float | None = field(default=None, metadata=doc("Relative, of the loss"))
    test_loss_fp32: float | None = None
    test_accuracy_fp32: float | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent(Event):
    """A checkpoint that was written, with its metrics."""

    step: int = field(metadata=doc("Steps in total, with those before a checkpoint", ge=0))
    manifest: str = field(metadata=doc("File name"))
    loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None


@dataclass(frozen=True, kw_only=True)
class ResumedEvent(Event):
    """A checkpoint from which the training goes on."""

    step: int = field(metadata={"ge": 0})
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class BatchTrialEvent(Event):
    """A batch size that was tried for ``training.batch_size=auto``."""

    samples: int = field(metadata={"ge": 1})
    fits: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PipelineEvent(Event):
    """Rank zero's durations in one logged call of the diffusion pipeline."""

    call: int | None = field(default=None, metadata=doc("Number of the call from 1", ge=1))
    rank: int = field(metadata={"ge": 0})
    steps: tuple[int, int] = field(metadata=doc("First step, and the one after the last"))
    samples: int = field(metadata={"ge": 1})
    receive_s: float
    step_s: float
    send_s: float
    sent_s: float = field(metadata=doc("Waiting until all was sent"))


@dataclass(frozen=True, kw_only=True)
class TurnsEvent(Event):
    """Turns of the variants that a benchmark compared: rank zero's mean seconds per call."""

    step_s: Mapping[str, tuple[float, ...]] = field(metadata=doc("By variant, each turn"))


@dataclass(frozen=True, kw_only=True)
class DeviceStateEvent(Event):
    """What slowed a GPU during the timed calls, and what NVML does not tell of it."""

    slowed_by: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ThrottleWaitEvent(Event):
    """A wait for a throttled GPU, ``measure.throttle=wait``."""

    waited_s: float = field(metadata={"ge": 0})
    reasons: tuple[str, ...]
    still_throttled: bool


@dataclass(frozen=True, kw_only=True)
class ThrottledEvent(Event):
    """Numbers that ``measure.throttle=fail`` refused."""

    flags: tuple[str, ...]
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class RankEndedEvent(Event):
    """How one rank ended of a benchmark that failed on several."""

    rank: int = field(metadata={"ge": 0})
    state: str
    outcome: str | None = None
    reason: str = ""
    stack: str = ""
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class GangNotStartedEvent(Event):
    """Ranks that could not be started."""

    stacks: Mapping[str, str] = field(metadata=doc("By rank"))
    output: str
