"""The sections of a configuration and every key in them.

Keys are strict: a wrong type is refused, never coerced. A workload extends :class:`ModelSection`
with keys of its own, which then stand in the ``model`` section.
"""

from __future__ import annotations

from typing import Annotated, Final, Generic, Literal, TypeVar

from pydantic import Field

from gpubench_plugin.config.diffusion import DiffusionSection
from gpubench_plugin.config.gate import GateSection
from gpubench_plugin.config.inference import InferenceSection
from gpubench_plugin.config.micro import MicroSection
from gpubench_plugin.config.moe import MoeSection
from gpubench_plugin.config.profiling import ProfilingSection
from gpubench_plugin.config.section import PositiveFloat, PositiveInt, Section

Preset = Literal["tiny", "full"]


class ExperimentSection(Section):
    """What the run is called, its notes and its seed; preset and device are chosen by flags."""

    notes: str = Field(default="", description="Free text kept with the results")
    seed: int = Field(default=0, ge=0, description="Seed of model, data and check")
    preset: Preset = Field(default="tiny", description="Chosen by --preset")
    device: str = Field(default="cpu", description="Type of the device; chosen by --device")


class ModelSection(Section):
    """The workload and how its model is built; a workload adds its own keys."""

    name: str | None = Field(default=None, description="The workload")
    channels_last: bool = Field(
        default=False, description="Memory format NHWC for models of images"
    )
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = Field(
        default="none", description="Mode of torch.compile"
    )
    compile_backend: str = Field(
        default="inductor", description="Back end of torch.compile, one of torch's registry"
    )
    cudnn_benchmark: bool | None = Field(
        default=None, description="Let cuDNN try its convolutions and take the fastest; null: yes"
    )
    activation_checkpointing: bool = Field(
        default=False, description="Compute activations again in the backward pass"
    )


class DataSection(Section):
    """Where batches come from."""

    source: str = Field(
        default="synthetic",
        description="synthetic, a shipped real data set, or images from a path",
    )
    path: str | None = Field(
        default=None,
        description="images: CIFAR-10 (binary), MNIST, or a folder of one folder per class",
    )
    workers: int = Field(default=0, ge=0, description="images: processes that load ahead")
    pin_memory: bool | None = Field(
        default=None, description="images: load into pinned memory; null: for CUDA"
    )
    prefetch_factor: PositiveInt = Field(
        default=2, description="images: batches that each worker loads ahead"
    )
    persistent_workers: bool = Field(
        default=True, description="images: workers live on from epoch to epoch"
    )
    global_batch_size: PositiveInt | None = Field(
        default=None,
        description="Samples per step over all ranks (strong scaling), instead of per rank",
    )


class TrainingSection(Section):
    """The training step, and the untimed training that checks it."""

    batch_size: PositiveInt = Field(
        default=8, description="Samples per batch and rank (weak scaling)"
    )
    optimizer: str = Field(default="sgd", description="The optimizer")
    learning_rate: PositiveFloat = Field(default=0.01, description="Before the scheduler's factor")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Of SGD")
    weight_decay: float = Field(default=0.0, ge=0, description="Of the optimizer")
    fused: bool | None = Field(default=None, description="Fused optimizer; null: on accelerators")
    scheduler: str = Field(default="constant", description="Schedule of the learning rate")
    schedule_steps: PositiveInt = Field(default=1000, description="Length of the schedule in steps")
    gradient_clipping: PositiveFloat | None = Field(default=None, description="Largest global norm")
    accumulation_steps: PositiveInt = Field(default=1, description="Batches per optimizer step")
    steps: PositiveInt | None = Field(
        default=None, description="Untimed steps on one fixed batch before measuring; null: 20"
    )
    epochs: PositiveInt | None = Field(
        default=None, description="Passes over the data set before measuring, instead of steps"
    )
    log_every: PositiveInt = Field(
        default=5, description="Journal the untimed training every N steps"
    )
    loss_drop: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="The last three losses must be below this share of the first three",
    )
    evaluate: bool = Field(
        default=False, description="Evaluate on held-out samples after the untimed training"
    )
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Convergence: train until the held-out samples have it"
    )
    target_loss: PositiveFloat | None = Field(
        default=None, description="Convergence: the same of their loss; one target is given"
    )
    evaluate_every: PositiveInt | None = Field(
        default=None, description="Convergence: steps between evaluations; null: an epoch"
    )
    max_steps: PositiveInt = Field(
        default=1000, description="Convergence: a target not reached by then is an error"
    )
    parity_band: PositiveFloat = Field(
        default=0.05, description="Convergence: largest relative error of the final loss"
    )
    deterministic: bool = Field(
        default=False, description="Deterministic algorithms only, or unsupported"
    )
    checkpoint: bool = Field(
        default=False, description="Write a checkpoint of the untimed training, latest and best"
    )
    resume: str | None = Field(
        default=None, description="Checkpoint to go on from: its manifest, or the folder of latest"
    )


class PrecisionSection(Section):
    """Numeric precision; the name is chosen by --precision."""

    name: str = Field(default="fp32", description="Chosen by --precision")
    init_scale: PositiveFloat = Field(default=65536.0, description="First scale of the GradScaler")
    growth_interval: PositiveInt = Field(
        default=2000, description="Steps between two growths of it"
    )


class DistributedSection(Section):
    """Ranks and how they work together."""

    world_size: PositiveInt = Field(default=1, description="Chosen by --world-size or torchrun")
    backend: Literal["auto", "gloo", "nccl", "xccl"] = Field(
        default="auto", description="Of the process group"
    )
    parallelism: str = Field(default="auto", description="auto: ddp on several ranks")
    scaling: Literal["weak", "strong"] = Field(
        default="weak", description="Chosen by data.global_batch_size: strong where it is given"
    )
    bucket_cap_mb: PositiveFloat | None = Field(
        default=None, description="ddp: MiB of gradients reduced together; null: torch's default"
    )
    gradient_as_bucket_view: bool = Field(
        default=True, description="ddp: gradients lie in the buckets, which saves a copy"
    )
    static_graph: bool = Field(
        default=False, description="ddp: promise that every step uses the same parameters"
    )
    reshard_after_forward: bool | None = Field(
        default=None,
        description="fsdp2: free gathered parameters after the forward pass; null: not the root's",
    )
    fsdp_param_dtype: Literal["bf16", "fp16"] | None = Field(
        default=None, description="fsdp2: gather and compute in; null: the parameters' own dtype"
    )
    fsdp_reduce_dtype: Literal["fp32", "bf16", "fp16"] | None = Field(
        default=None, description="fsdp2: reduce gradients in; null: what they are computed in"
    )
    pipeline_schedule: Literal["GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"] = Field(
        default="1F1B", description="pipeline: the order in which microbatches pass the stages"
    )
    pipeline_microbatches: PositiveInt | None = Field(
        default=None,
        description="pipeline: equal parts of the batch; null: at least as many as stages",
    )
    threads: PositiveInt | None = Field(
        default=None, description="CPU threads per rank; null: its share"
    )
    largest_message_bytes: PositiveInt | None = Field(
        default=None, description="Collectives on larger messages are skipped; null: on none"
    )
    share_device: bool = Field(
        default=False, description="All ranks of a host on one device, over gloo: a simulator"
    )
    failure_grace_s: PositiveFloat = Field(
        default=5.0, description="A rank that does not end this long after another failed is hung"
    )
    divergence_s: PositiveFloat = Field(
        default=60.0, description="The same after another rank passed"
    )


PARALLELISM_OF: Final = {
    "bucket_cap_mb": "ddp",
    "gradient_as_bucket_view": "ddp",
    "static_graph": "ddp",
    "reshard_after_forward": "fsdp2",
    "fsdp_param_dtype": "fsdp2",
    "fsdp_reduce_dtype": "fsdp2",
    "pipeline_schedule": "pipeline",
    "pipeline_microbatches": "pipeline",
}
"""The keys of the section ``distributed`` that one parallelism alone reads."""


class MeasureSection(Section):
    """Warm-up, the rule that ends measuring, and how time is taken."""

    profile: Literal["quick", "full"] | None = Field(
        default=None,
        description="Defaults of this section: quick for each change, full for every night",
    )
    by: Literal["ci", "steps", "time"] = Field(default="ci", description="What ends measuring")
    ci_half_width: PositiveFloat = Field(
        default=0.01, description="by ci: half-width of the median's confidence interval, relative"
    )
    confidence: float = Field(default=0.95, gt=0, lt=1, description="Level of that interval")
    min_rounds: PositiveInt = Field(default=10, description="by ci: at least")
    max_rounds: PositiveInt = Field(default=200, description="by ci: at most")
    max_time_s: PositiveFloat = Field(default=3.0, description="by ci: give up here, flagged")
    steps: PositiveInt = Field(default=50, description="by steps: calls of the step per rank")
    time_s: PositiveFloat = Field(default=3.0, description="by time: length of the window")
    round_s: PositiveFloat = Field(default=0.001, description="Shortest round")
    warmup_iterations: PositiveInt = Field(default=3, description="At least")
    warmup_s: PositiveFloat | None = Field(
        default=None, description="At least; null: 0.5 on an accelerator, 0.1 on a CPU"
    )
    warmup_max_rounds: PositiveInt = Field(default=100, description="Not steady by then: flagged")
    warmup_max_s: PositiveFloat = Field(default=10.0, description="Not steady by then: flagged")
    steady_tolerance: PositiveFloat = Field(
        default=0.02, description="Steady: medians of the last and the previous 5 rounds this near"
    )
    timing: Literal["step", "kernel"] = Field(
        default="step", description="kernel: single CUDA kernels"
    )
    cache: Literal["hot", "cold"] = Field(
        default="hot", description="kernel: state of the L2 cache"
    )
    rounds_file: str | None = Field(
        default=None,
        description="JSON file of the rounds each benchmark is to run, instead of a rule",
    )
    keep_durations: PositiveInt = Field(
        default=1_000_000,
        description="More durations are sketched: of them the medians of rounds are kept, flagged",
    )
    sketch_rank_error: Annotated[float, Field(ge=1e-4, le=0.1)] = Field(
        default=0.001, description="How far the rank of a percentile may then be off"
    )
    timeout_s: PositiveFloat | None = Field(
        default=None,
        description="Longer is a hang; null: the mark's, else that of the ini file",
    )
    gc: bool = Field(default=False, description="Leave Python's garbage collector on while timing")
    check: bool | None = Field(
        default=None,
        description="Compare the first training steps with fp32; null: with preset tiny",
    )
    check_steps: PositiveInt = Field(default=5, description="check: steps compared")
    check_loss_band: PositiveFloat | None = Field(
        default=None, description="check: largest relative error of a loss; null: the precision's"
    )
    check_gradient_band: PositiveFloat | None = Field(
        default=None,
        description="check: largest relative error of a gradient norm; null: the precision's",
    )


M_co = TypeVar("M_co", bound=ModelSection, covariant=True)


class Configuration(Section, Generic[M_co]):
    """A resolved configuration: part of every result and of its comparability."""

    experiment: ExperimentSection = ExperimentSection()
    model: M_co
    data: DataSection = DataSection()
    training: TrainingSection = TrainingSection()
    precision: PrecisionSection = PrecisionSection()
    distributed: DistributedSection = DistributedSection()
    measure: MeasureSection = MeasureSection()
    profiling: ProfilingSection = ProfilingSection()
    gate: GateSection = GateSection()
    moe: MoeSection = MoeSection()
    diffusion: DiffusionSection = DiffusionSection()
    micro: MicroSection = MicroSection()
    inference: InferenceSection = InferenceSection()
