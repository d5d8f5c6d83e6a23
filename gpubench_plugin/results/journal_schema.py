"""Journal schema: the lines of ``metrics.jsonl`` as records.

The published schema is generated from them, and a test keeps it current::

    gpubench schema journal > docs/schemas/journal.schema.json

Every line is one JSON object. Readers ignore unknown events: new ones need no new version.
Non-finite numbers are null, and listed under ``not_finite``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from gpubench_plugin.core.records import BenchmarkRecord, Better, Phase, RunStatus, doc
from gpubench_plugin.results.summary import UtcTime
from gpubench_plugin.results.verdicts import VerdictDocument

_OPEN: Final = {"extra": "allow", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class _Line:
    __pydantic_config__: ClassVar = _OPEN

    schema_version: Literal[1]
    time: UtcTime = field(metadata=doc("UTC time of the event"))
    not_finite: Mapping[str, Literal["nan", "inf", "-inf"]] = field(
        default_factory=dict,
        metadata=doc("Non-finite numbers of this line, which are stored as null, by JSON pointer"),
    )


@dataclass(frozen=True, kw_only=True)
class RunStarted(_Line):
    """First line of a run."""

    event: Literal["run_started"]
    run_id: str = field(metadata={"min_length": 1})
    command: tuple[str, ...] = field(metadata=doc("Arguments of pytest, without secrets"))
    code: Mapping[str, str] = field(
        metadata=doc("Content hash of every code file, as seen from pytest's rootdir")
    )
    params: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict,
        metadata=doc("Parameters of every selected benchmark, by node id"),
    )


@dataclass(frozen=True, kw_only=True)
class RunResumed(_Line):
    """Continuation of the run in another session."""

    event: Literal["run_resumed"]
    run_id: str = field(metadata={"min_length": 1})
    command: tuple[str, ...]
    kept: int = field(metadata=doc("Number of benchmarks measured before", ge=0))


@dataclass(frozen=True, kw_only=True)
class RunFinished(_Line):
    """Orderly end; the summary is written afterwards."""

    event: Literal["run_finished"]
    status: RunStatus


@dataclass(frozen=True, kw_only=True)
class JournalMetric:
    """A metric; the value is null if it was not finite."""

    __pydantic_config__: ClassVar = _OPEN

    name: str
    value: float | None
    unit: str
    better: Better


@dataclass(frozen=True, kw_only=True)
class BenchmarkEvent(_Line, BenchmarkRecord):
    """Complete record of a benchmark with all samples; the last line wins."""

    event: Literal["benchmark"]
    samples: Mapping[str, Any] | None = field(metadata=doc("Every duration, in seconds per call"))
    metrics: Mapping[str, JournalMetric]
    per_launch: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class VerdictsEvent(_Line):
    """Verdicts of a comparison with a baseline; the last line wins."""

    event: Literal["verdicts"]
    verdicts: VerdictDocument


@dataclass(frozen=True, kw_only=True)
class _BenchmarkEvent(_Line):
    benchmark: str = field(metadata=doc("Node id of the benchmark", min_length=1))
    launch: int | None = field(
        default=None, metadata=doc("Number of the launch, of several (--launches)", ge=1)
    )


@dataclass(frozen=True, kw_only=True)
class PhaseEvent(_BenchmarkEvent):
    """Start of a phase; ``build`` starts another try of the benchmark if there was one."""

    event: Literal["phase"]
    phase: Phase
    steps: int | None = field(
        default=None, metadata=doc("Of ``train``: number of the last step it takes at most", ge=1)
    )


@dataclass(frozen=True, kw_only=True)
class ProgressEvent(_BenchmarkEvent):
    """Measurement so far, between two timed blocks, at most once a second."""

    event: Literal["progress"]
    rounds: int = field(metadata={"ge": 0})
    calls: int = field(metadata=doc("Timed calls", ge=0))
    half_width: float | None = field(
        metadata=doc("Relative half-width of the median's interval at its last check")
    )
    step_s: float = field(metadata=doc("Seconds per call: the median of the last 50 rounds"))
    samples_per_s: float | None = field(
        default=None, metadata=doc("Of all ranks, each taken to do the work of rank zero")
    )
    tokens_per_s: float | None = field(default=None, metadata=doc("As samples_per_s"))
    elapsed_s: float = field(metadata=doc("Seconds since the timed calls began", ge=0))
    remaining_s: float | None = field(
        metadata=doc("Estimated seconds until the measurement stops; null before its first check")
    )


@dataclass(frozen=True, kw_only=True)
class TrainingStepEvent(_BenchmarkEvent):
    """One step of the untimed training, logged every ``training.log_every`` steps."""

    event: Literal["training_step"]
    step: int = field(metadata={"ge": 0})
    loss: float | None = field(metadata=doc("Mean over the ranks of the step's last batch"))
    learning_rate: float | None = field(default=None, metadata=doc("Of the next step"))
    skipped_steps: int | None = field(
        default=None, metadata=doc("Steps so far that the GradScaler skipped", ge=0)
    )
    loss_scale: float | None = field(default=None, metadata=doc("Of the GradScaler"))
    gradient_norm: float | None = field(
        default=None, metadata=doc("Global norm before clipping; null without clipping")
    )
    samples_per_s: float | None = field(
        default=None, metadata=doc("Of all ranks, since the line before")
    )


@dataclass(frozen=True, kw_only=True)
class EpochEvent(_BenchmarkEvent):
    """One pass of the untimed training over the data; means over the batches of all ranks."""

    event: Literal["epoch"]
    epoch: int = field(metadata=doc("Number from 1", ge=1))
    step: int = field(metadata=doc("The step that completed it", ge=1))
    loss: float | None
    accuracy: float | None = field(
        default=None, metadata=doc("On the training samples, as each batch was trained on")
    )
    test_loss: float | None = field(default=None, metadata=doc("On held-out samples, at its end"))
    test_accuracy: float | None = None
    samples: int = field(metadata=doc("Of all ranks", ge=1))
    duration_s: float = field(metadata=doc("Without evaluations", ge=0))
    samples_per_s: float


@dataclass(frozen=True, kw_only=True)
class FlopsEvent(_BenchmarkEvent):
    """FLOP count of one call."""

    event: Literal["flops"]
    per_call: float
    uncounted_ops: tuple[str, ...] | Mapping[str, Any] = field(
        metadata=doc("Operations without a formula")
    )


@dataclass(frozen=True, kw_only=True)
class TrafficEvent(_BenchmarkEvent):
    """Control traffic between the ranks during a measurement."""

    event: Literal["traffic"]


@dataclass(frozen=True, kw_only=True)
class LogEvent(_BenchmarkEvent):
    """A point of the user's own curves: what ``gpubench.log`` was given."""

    event: Literal["log"]
    step: int = field(metadata=doc("The user's", ge=0))
    metrics: Mapping[str, float | None] = field(metadata={"min_length": 1})


@dataclass(frozen=True, kw_only=True)
class EvaluationEvent(_BenchmarkEvent):
    """An evaluation on held-out samples, of all ranks."""

    event: Literal["evaluation"]
    step: int | None = field(
        default=None, metadata=doc("On the way to a target; null after an untimed training", ge=1)
    )
    is_best: bool | None = field(default=None, metadata=doc("The best so far, for the target"))
    test_loss: float | None
    test_accuracy: float | None = None


@dataclass(frozen=True, kw_only=True)
class ConvergenceEvent(_BenchmarkEvent):
    """A target that was reached, and how near its training is to that in fp32."""

    event: Literal["convergence"]
    target: str = field(metadata=doc("The key and its value"))
    step: int = field(metadata={"ge": 1})
    parity_error: float | None = field(
        default=None, metadata=doc("Relative error of the loss; null in fp32 itself")
    )
    test_loss_fp32: float | None = None
    test_accuracy_fp32: float | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent(_BenchmarkEvent):
    """A checkpoint that was written, with its metrics."""

    event: Literal["checkpoint"]
    step: int = field(metadata=doc("Steps in total, with those before a checkpoint", ge=0))
    manifest: str = field(metadata=doc("File name"))
    loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None


@dataclass(frozen=True, kw_only=True)
class ResumedEvent(_BenchmarkEvent):
    """A checkpoint from which the training goes on."""

    event: Literal["resumed"]
    step: int = field(metadata={"ge": 0})
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class BatchTrialEvent(_BenchmarkEvent):
    """A batch size that was tried for ``training.batch_size=auto``."""

    event: Literal["batch_trial"]
    samples: int = field(metadata={"ge": 1})
    fits: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PipelineEvent(_BenchmarkEvent):
    """Rank zero's durations in one logged call of the diffusion pipeline."""

    event: Literal["pipeline"]
    call: int | None = field(default=None, metadata=doc("Number of the call from 1", ge=1))
    rank: int = field(metadata={"ge": 0})
    steps: tuple[int, int] = field(metadata=doc("First step, and the one after the last"))
    samples: int = field(metadata={"ge": 1})
    receive_s: float
    step_s: float
    send_s: float
    sent_s: float = field(metadata=doc("Waiting until all was sent"))


@dataclass(frozen=True, kw_only=True)
class TurnsEvent(_BenchmarkEvent):
    """Turns of the variants that a benchmark compared, on rank zero."""

    event: Literal["turns"]
    step_s: Mapping[str, tuple[float, ...]] = field(
        metadata=doc("By variant: mean seconds per call of each turn, in the order of the passes")
    )


@dataclass(frozen=True, kw_only=True)
class DeviceStateEvent(_BenchmarkEvent):
    """What slowed a GPU during the timed calls, and what NVML does not tell of it."""

    event: Literal["device_state"]
    slowed_by: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ThrottleWaitEvent(_BenchmarkEvent):
    """A wait for a throttled GPU, ``measure.throttle=wait``."""

    event: Literal["throttle_wait"]
    waited_s: float = field(metadata={"ge": 0})
    reasons: tuple[str, ...]
    still_throttled: bool


@dataclass(frozen=True, kw_only=True)
class ThrottledEvent(_BenchmarkEvent):
    """Numbers that ``measure.throttle=fail`` refused."""

    event: Literal["throttled"]
    flags: tuple[str, ...]
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class RankEndedEvent(_BenchmarkEvent):
    """How one rank ended of a benchmark that failed on several."""

    event: Literal["rank_ended"]
    rank: int = field(metadata={"ge": 0})
    state: str
    outcome: str | None = None
    reason: str = ""
    stack: str = ""
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class GangNotStartedEvent(_BenchmarkEvent):
    """Ranks that could not be started."""

    event: Literal["gang_not_started"]
    stacks: Mapping[str, str] = field(metadata=doc("By rank"))
    output: str


KNOWN: Final = frozenset(
    {
        *("run_started", "run_resumed", "run_finished", "benchmark", "verdicts"),
        *("training_step", "epoch", "flops", "traffic"),
        *("log", "evaluation", "convergence", "checkpoint", "resumed", "batch_trial", "pipeline"),
        *("device_state", "throttle_wait", "throttled", "rank_ended", "gang_not_started"),
        *("phase", "progress", "turns"),
    }
)
"""Events with a record of their own."""


def _is_other(event: str) -> str:
    if event in KNOWN:
        raise ValueError(f"{event!r} has its own form")
    return event


@dataclass(frozen=True, kw_only=True)
class OtherEvent(_Line):
    """Any other event, with arbitrary fields."""

    event: Annotated[
        str,
        AfterValidator(_is_other),
        Field(min_length=1, json_schema_extra={"not": {"enum": sorted(KNOWN)}}),
    ]


Line = Annotated[
    RunStarted
    | RunResumed
    | RunFinished
    | BenchmarkEvent
    | VerdictsEvent
    | TrainingStepEvent
    | EpochEvent
    | FlopsEvent
    | TrafficEvent
    | LogEvent
    | EvaluationEvent
    | ConvergenceEvent
    | CheckpointEvent
    | ResumedEvent
    | BatchTrialEvent
    | PipelineEvent
    | TurnsEvent
    | DeviceStateEvent
    | ThrottleWaitEvent
    | ThrottledEvent
    | RankEndedEvent
    | GangNotStartedEvent
    | PhaseEvent
    | ProgressEvent
    | OtherEvent,
    Field(title="gpubench journal line"),
]
