"""The sections of a configuration and every key in them.

Keys are strict: a wrong type is refused, never coerced. A workload extends :class:`ModelSection`
with keys of its own, which then stand in the ``model`` section.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Preset = Literal["tiny", "full"]


class Section(BaseModel):
    """A frozen group of keys in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ExperimentSection(Section):
    """What the run is called, its notes and its seed; preset and device are chosen by flags."""

    notes: str = Field("", description="Free text kept with the results")
    seed: int = Field(0, ge=0, description="Seed of model, data and check")
    preset: Preset = Field("tiny", description="Chosen by --preset")
    device: str = Field("cpu", description="Type of the device; chosen by --device")


class ModelSection(Section):
    """The workload and how its model is built; a workload adds its own keys."""

    name: str | None = Field(None, description="The workload")
    channels_last: bool = Field(False, description="Memory format NHWC for models of images")
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = Field(
        "none", description="Mode of torch.compile"
    )


class DataSection(Section):
    """Where batches come from."""

    source: str = Field("synthetic", description="synthetic, or a shipped real data set")
    global_batch_size: PositiveInt | None = Field(
        None, description="Samples per step over all ranks (strong scaling), instead of per rank"
    )


class TrainingSection(Section):
    """The training step, and the untimed training that checks it."""

    batch_size: PositiveInt = Field(8, description="Samples per step and rank (weak scaling)")
    optimizer: str = Field("sgd", description="The optimizer")
    learning_rate: PositiveFloat = 0.01
    momentum: float = Field(0.9, ge=0, lt=1, description="Of SGD")
    weight_decay: float = Field(0.0, ge=0)
    fused: bool | None = Field(None, description="Fused optimizer; null: on accelerators")
    scheduler: str = Field("constant", description="Schedule of the learning rate")
    schedule_steps: PositiveInt = Field(1000, description="Length of the schedule in steps")
    gradient_clipping: PositiveFloat | None = Field(None, description="Largest global norm")
    accumulation_steps: PositiveInt = Field(1, description="Batches per optimizer step")
    steps: PositiveInt | None = Field(
        None, description="Untimed steps on one fixed batch before measuring; null: 20"
    )
    epochs: PositiveInt | None = Field(
        None, description="Passes over the data set before measuring, instead of steps"
    )
    log_every: PositiveInt = Field(5, description="Journal the untimed training every N steps")
    loss_drop: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="The last three losses must be below this share of the first three"
    )


class PrecisionSection(Section):
    """Numeric precision; the name is chosen by --precision."""

    name: str = Field("fp32", description="Chosen by --precision")
    init_scale: PositiveFloat = Field(65536.0, description="First scale of the GradScaler")
    growth_interval: PositiveInt = Field(2000, description="Steps between two growths of it")


class DistributedSection(Section):
    """Ranks and how they work together."""

    world_size: PositiveInt = Field(1, description="Chosen by torchrun")
    backend: Literal["auto", "gloo", "nccl"] = Field("auto", description="Of the process group")
    parallelism: str = Field("auto", description="auto: ddp on several ranks")
    threads: PositiveInt | None = Field(None, description="CPU threads per rank; null: its share")


class MeasureSection(Section):
    """Warm-up, the rule that ends measuring, and how time is taken."""

    by: Literal["ci", "steps", "time"] = Field("ci", description="What ends measuring")
    ci_half_width: PositiveFloat = Field(
        0.01, description="by ci: half-width of the median's confidence interval, relative"
    )
    confidence: float = Field(0.95, gt=0, lt=1)
    min_rounds: PositiveInt = 10
    max_rounds: PositiveInt = 200
    max_time_s: PositiveFloat = Field(3.0, description="by ci: give up here, flagged")
    steps: PositiveInt = Field(50, description="by steps: calls of the step per rank")
    time_s: PositiveFloat = Field(3.0, description="by time: length of the window")
    round_s: PositiveFloat = Field(0.001, description="Shortest round")
    warmup_iterations: PositiveInt = Field(3, description="At least")
    warmup_s: PositiveFloat | None = Field(
        None, description="At least; null: 0.5 on an accelerator, 0.1 on a CPU"
    )
    warmup_max_rounds: PositiveInt = 100
    warmup_max_s: PositiveFloat = 10.0
    steady_tolerance: PositiveFloat = Field(
        0.02, description="Steady: medians of the last and the previous 5 rounds this near"
    )
    timing: Literal["step", "kernel"] = Field("step", description="kernel: single CUDA kernels")
    cache: Literal["hot", "cold"] = Field("hot", description="kernel: state of the L2 cache")
    gc: bool = Field(False, description="Leave Python's garbage collector on while timing")


class ProfilingSection(Section):
    """torch.profiler on extra steps after the measurement, never during it."""

    enabled: bool = Field(False, description="Also set by --profile")
    steps: PositiveInt = 3
    record_shapes: bool = False
    with_stack: bool = False


M = TypeVar("M", bound=ModelSection, covariant=True)


class Configuration(Section, Generic[M]):
    """A resolved configuration: part of every result and of its comparability."""

    experiment: ExperimentSection = ExperimentSection()
    model: M
    data: DataSection = DataSection()
    training: TrainingSection = TrainingSection()
    precision: PrecisionSection = PrecisionSection()
    distributed: DistributedSection = DistributedSection()
    measure: MeasureSection = MeasureSection()
    profiling: ProfilingSection = ProfilingSection()
