"""Configuration sections and their keys.

Keys are strict: a wrong type is refused, never coerced. A workload extends :class:`ModelSection`
with keys of its own, which then stand in the ``model`` section.
"""

from __future__ import annotations

from typing import Annotated, Final, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from gpubench_plugin.errors import nearest

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """A frozen section that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


SCHEDULERS: Final = {
    "ddim": "DDIMScheduler",
    "ddpm": "DDPMScheduler",
    "deis": "DEISMultistepScheduler",
    "dpmsolver-multistep": "DPMSolverMultistepScheduler",
    "dpmsolver-singlestep": "DPMSolverSinglestepScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler-ancestral": "EulerAncestralDiscreteScheduler",
    "flow-match-euler": "FlowMatchEulerDiscreteScheduler",
    "heun": "HeunDiscreteScheduler",
    "ipndm": "IPNDMScheduler",
    "lcm": "LCMScheduler",
    "lms": "LMSDiscreteScheduler",
    "pndm": "PNDMScheduler",
    "sasolver": "SASolverScheduler",
    "unipc": "UniPCMultistepScheduler",
}
"""Noise schedulers by their names here, with their classes in diffusers; not all can be split."""


class DiffusionSection(Section):
    """A pipeline of denoising steps."""

    denoising_steps: PositiveInt = Field(
        default=8, description="Denoising steps asked of the scheduler"
    )
    samples: PositiveInt = Field(default=1, description="Samples that follow each other")
    scheduler: str = Field(
        default="ddim", description="The noise scheduler, one whose steps can be split"
    )
    remainder: Literal["refuse", "first", "last", "spread"] = Field(
        default="refuse",
        description="Steps that do not divide: refused, on that rank, or on the first few",
    )
    receive_timeout_s: PositiveFloat = Field(
        default=300.0, description="A message that does not come for so long fails the benchmark"
    )

    @field_validator("scheduler")
    @classmethod
    def _canonical_scheduler(cls, name: str) -> str:
        """Map a diffusers class name to the scheduler's name here."""
        for own_name, library_class in SCHEDULERS.items():
            if name in (own_name, library_class):
                return own_name
        choices = SCHEDULERS if name == name.lower() else SCHEDULERS.values()
        raise ValueError(f"unknown {name!r}{nearest(name, choices)}; allowed: {', '.join(choices)}")


LimitText = Annotated[str, Field(examples=["3%", "<=0.25"])]


class GateSection(Section):
    """Settings of ``--gate``; not part of comparability."""

    limits: dict[str, LimitText] = Field(
        default={}, description="By metric: how much worse it may get, or a fixed bound"
    )


class InferenceSection(Section):
    """Forward passes and token-by-token text generation."""

    batch_size: PositiveInt | Literal["max"] | None = Field(
        default=None, description="Samples per call; max: the largest; null: training.batch_size"
    )
    largest_batch_size: PositiveInt | None = Field(
        default=None, description="What max stands for; null: training.batch_size"
    )
    prompt_tokens: PositiveInt | None = Field(
        default=None, description="Generation: given tokens; null: half of model.sequence_length"
    )
    new_tokens: PositiveInt | None = Field(
        default=None, description="Generation: tokens until it starts anew; null: the other half"
    )

    def samples(self, training_batch_size: int) -> int:
        """Samples per call."""
        if self.batch_size == "max":
            return self.largest_batch_size or training_batch_size
        return self.batch_size or training_batch_size


class MicroSection(Section):
    """Sizes of micro benchmarks."""

    matrix_size: PositiveInt = Field(default=256, description="Rows and columns of matrices")
    batch: PositiveInt = Field(default=4, description="Samples of a convolution, of attention")
    channels: PositiveInt = Field(default=32, description="Channels of a convolution")
    image_size: PositiveInt = Field(default=32, description="Height and width of its images")
    heads: PositiveInt = Field(default=4, description="Heads of attention")
    tokens: PositiveInt = Field(default=128, description="Tokens of a sequence in attention")
    head_size: PositiveInt = Field(default=64, description="Features of a head")
    rows: PositiveInt = Field(default=512, description="Rows of softmax, norms, layouts")
    columns: PositiveInt = Field(default=512, description="Columns of softmax, norms, layouts")
    tensors: PositiveInt = Field(default=20, description="Parameters of an optimizer")
    tensor_elements: PositiveInt = Field(default=4096, description="Elements of each of them")
    copy_bytes: PositiveInt = Field(default=1048576, description="Length of a copy")
    graphs: PositiveInt = Field(default=2, description="Autograd graphs without a part in common")
    layers: PositiveInt = Field(default=16, description="Linear layers of each of them")
    layer_size: PositiveInt = Field(default=128, description="Features of these layers")


class MoeSection(Section):
    """A mixture-of-experts layer."""

    experts: PositiveInt = Field(default=8, description="Experts over all ranks")
    top_k: PositiveInt = Field(default=2, description="Experts that each token visits")
    width: PositiveInt = Field(default=64, description="Features of a token")
    hidden: PositiveInt = Field(default=128, description="Features inside an expert")
    tokens: PositiveInt = Field(default=256, description="Tokens of a rank in one call")
    balancing: Literal["none", "aux-loss", "z-loss"] = Field(
        default="aux-loss", description="What keeps the router from preferring few experts"
    )
    balancing_weight: PositiveFloat = Field(default=0.01, description="Weight of that loss")
    capacity_factor: PositiveFloat | None = Field(
        default=None,
        description="Tokens an expert takes, relative to an even share; null: all, none is dropped",
    )
    dispatcher: Literal["auto", "local", "all-gather", "all-to-all", "flex"] = Field(
        default="auto",
        description="How tokens travel to their experts; auto: local, or all-to-all between ranks",
    )
    expert_kind: Literal["sequential", "grouped", "te-grouped"] = Field(
        default="grouped", description="How a rank computes its experts"
    )
    expert_parallel: PositiveInt | None = Field(
        default=None, description="Ranks that share the experts; null: as many as there are"
    )
    tensor_parallel: PositiveInt = Field(
        default=1, description="Ranks that share each expert's hidden features"
    )
    rank_sorter: str = Field(default="none", description="The order in which ranks take experts")
    device_initialisation: bool = Field(
        default=False, description="Draw the weights on the device instead of on the CPU"
    )
    pinned_cache: PositiveInt | None = Field(
        default=None,
        description="Experts kept on the device, the others in pinned memory; null: all on it",
    )
    graph_capture: bool = Field(
        default=False, description="Replay the router, whose shapes are fixed, as a CUDA graph"
    )

    @model_validator(mode="after")
    def _validate(self) -> Self:
        """Validate keys against each other."""
        if self.top_k > self.experts:
            raise ValueError(
                f"top_k={self.top_k} of experts={self.experts}: a token cannot visit more experts "
                f"than there are; allowed: top_k from 1 to {self.experts}"
            )
        if self.hidden % self.tensor_parallel:
            raise ValueError(
                f"tensor_parallel={self.tensor_parallel} of hidden={self.hidden}: ranks cannot "
                "take equally many features; allowed: a tensor_parallel that divides hidden"
            )
        return self


class ProfilingSection(Section):
    """torch.profiler on extra steps after the measurement, never during it."""

    enabled: bool = Field(default=False, description="Also set by --profile")
    steps: PositiveInt = Field(default=3, description="Steps profiled")
    record_shapes: bool = Field(default=False, description="With the shapes of inputs")
    with_stack: bool = Field(default=False, description="With Python stacks")


Preset = Literal["tiny", "full"]


class ExperimentSection(Section):
    """Notes and seed of a run; preset and device are set by options."""

    notes: str = Field(default="", description="Free text kept with the results")
    seed: int = Field(default=0, ge=0, description="Seed of model, data and check")
    preset: Preset = Field(default="tiny", description="Chosen by --preset")
    device: str = Field(default="cpu", description="Type of the device; chosen by --device")


class ModelSection(Section):
    """The workload and how its model is built; workloads add their own keys."""

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
    """Data source and loading."""

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
    _loss_drop_ignored: str | None = PrivateAttr(default=None)

    @property
    def loss_drop_ignored(self) -> str | None:
        """Why a file's ``loss_drop`` is ignored; derived, not a key."""
        return self._loss_drop_ignored

    def without_loss_drop(self, cause: str) -> Self:
        """A copy without the stale ``loss_drop``."""
        copy = self.model_copy(update={"loss_drop": None})
        copy._loss_drop_ignored = cause
        return copy


class PrecisionSection(Section):
    """Numeric precision; its name is set by --precision."""

    name: str = Field(default="fp32", description="Chosen by --precision")
    init_scale: PositiveFloat = Field(default=65536.0, description="First scale of the GradScaler")
    growth_interval: PositiveInt = Field(
        default=2000, description="Steps between two growths of it"
    )


class DistributedSection(Section):
    """Ranks and process group."""

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
    """Warm-up, stopping rule, and timing."""

    profile: Literal["quick", "full"] | None = Field(
        default=None,
        description="Defaults of this section: quick for each change, full for every night",
    )
    by: Literal["ci", "steps", "time"] = Field(default="ci", description="What ends measuring")
    ci_half_width: PositiveFloat = Field(
        default=0.01, description="by ci: half-width of the median's confidence interval, relative"
    )
    confidence: float = Field(default=0.95, gt=0, le=0.9999, description="Level of that interval")
    min_time_s: PositiveFloat = Field(default=0.2, description="by ci: at least")
    min_rounds: PositiveInt = Field(default=10, description="by ci: at least")
    max_rounds: PositiveInt = Field(
        default=500, description="by ci: at most, once min_time_s is over"
    )
    max_time_s: PositiveFloat = Field(
        default=3.0, description="by ci: give up here, flagged; ten times later before min_rounds"
    )
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
        default=0.02,
        description="Steady: first and last third of the rounds differ by less, or by noise",
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
        description="Compare the first training steps with fp32; null: yes, of preset full one",
    )
    check_steps: PositiveInt = Field(
        default=5, description="check: steps compared; one of preset full, unless check is true"
    )
    check_loss_band: PositiveFloat | None = Field(
        default=None, description="check: largest relative error of a loss; null: the precision's"
    )
    check_gradient_band: PositiveFloat | None = Field(
        default=None,
        description="check: largest relative error of a gradient norm; null: the precision's",
    )

    @property
    def required_rounds(self) -> int:
        """Minimum number of rounds, capped by a stated maximum if it is the default."""
        return min(self.min_rounds, self.max_rounds)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        """Validate stated minima against stated maxima; defaults are capped instead."""
        if self.by != "ci":
            return self
        if {"min_rounds", "max_rounds"} <= self.model_fields_set and (
            self.min_rounds > self.max_rounds
        ):
            raise ValueError(
                f"measure.min_rounds={self.min_rounds} contradicts "
                f"measure.max_rounds={self.max_rounds}; allowed: a min_rounds up to max_rounds"
            )
        if "min_time_s" in self.model_fields_set and self.min_time_s > self.max_time_s:
            raise ValueError(
                f"measure.min_time_s={self.min_time_s:g} contradicts "
                f"measure.max_time_s={self.max_time_s:g}: measuring cannot last longer than "
                "it may; allowed: a min_time_s up to max_time_s"
            )
        return self


M_co = TypeVar("M_co", bound=ModelSection, covariant=True)


class Configuration(Section, Generic[M_co]):
    """A resolved configuration: stored with every result and part of its comparability."""

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
