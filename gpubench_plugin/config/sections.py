"""Configuration sections and their keys.

Keys are strict: a wrong type is refused, never coerced. A workload extends :class:`ModelSection`
with keys of its own, which then stand in the ``model`` section. What a key means is the docstring
below it, which the reference page shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Generic, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from gpubench_plugin.config.limits import Limit
from gpubench_plugin.config.marks import Preset
from gpubench_plugin.core.errors import Unsupported, UsageProblem, suggest
from gpubench_plugin.environment.redaction import redact

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """A frozen section that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    multiples: ClassVar[Mapping[str, str]] = {}
    """Keys whose value must be a multiple of another key's; not a key."""

    @model_validator(mode="after")
    def _check_multiples(self) -> Self:
        for name, divisor in self.multiples.items():
            values, of = getattr(self, name), getattr(self, divisor)
            for value in values if isinstance(values, tuple) else (values,):
                if value % of:
                    raise ValueError(f"{name} {value} is not a multiple of {divisor} {of}")
        return self


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

    denoising_steps: PositiveInt = 8
    """Number of denoising steps"""
    samples: PositiveInt = 1
    """Consecutive samples"""
    scheduler: str = "ddim"
    """Noise scheduler, one whose steps can be split"""
    remainder: Literal["refuse", "first", "last", "spread"] = "refuse"
    """Steps that do not divide evenly: refuse, or give them to the first, the last or the first few
    ranks"""
    receive_timeout_s: PositiveFloat | None = None
    """Timeout for receiving a message from another rank; null: the rest of the benchmark's"""

    @field_validator("scheduler")
    @classmethod
    def _canonical_scheduler(cls, name: str) -> str:
        """Map a diffusers class name to the scheduler's name here."""
        for own_name, library_class in SCHEDULERS.items():
            if name in (own_name, library_class):
                return own_name
        choices = SCHEDULERS if name == name.lower() else SCHEDULERS.values()
        raise ValueError(f"unknown {name!r}{suggest(name, choices)}; allowed: {', '.join(choices)}")


def _require_limit(text: str) -> str:
    try:
        Limit.parse(text, "limit")
    except UsageProblem as error:
        raise ValueError(str(error)) from None
    return text


LimitText = Annotated[str, AfterValidator(_require_limit)]


class GateSection(Section):
    """Settings of ``--gate``; not part of comparability."""

    limits: dict[str, LimitText] = Field(default={})
    """By metric: allowed regression, or an absolute bound"""


class InferenceSection(Section):
    """Forward passes and token-by-token text generation."""

    batch_size: PositiveInt | Literal["max"] | None = None
    """Samples per call; max: the largest that fits; null: training.batch_size"""
    largest_batch_size: PositiveInt | None = None
    """Meaning of max; null: training.batch_size"""
    prompt_tokens: PositiveInt | None = None
    """Generation: length of the prompt; null: half of model.sequence_length"""
    new_tokens: PositiveInt | None = None
    """Generation: tokens to generate before restarting; null: the other half"""

    def samples(self, training: TrainingSection) -> int:
        """Samples per call.

        Raises:
            Unsupported: they would be those of `training`, whose batch is not fitted.
        """
        size = self.largest_batch_size if self.batch_size == "max" else self.batch_size
        if size is None and training.batch_size == "auto":
            raise Unsupported(
                "inference.batch_size: takes training.batch_size=auto, which is fitted for the "
                "fixture trainer or inference only; state a number, inference.batch_size=N"
            )
        return size or training.samples


class MicroSection(Section):
    """Sizes of micro benchmarks."""

    matrix_size: PositiveInt = 256
    """Matrix rows and columns"""
    batch: PositiveInt = 4
    """Batch size of convolution and attention"""
    channels: PositiveInt = 32
    """Channels of a convolution"""
    image_size: PositiveInt = 32
    """Image height and width"""
    heads: PositiveInt = 4
    """Attention heads"""
    tokens: PositiveInt = 128
    """Attention sequence length"""
    head_size: PositiveInt = 64
    """Features per head"""
    rows: PositiveInt = 512
    """Rows of softmax, norms, layouts"""
    columns: PositiveInt = 512
    """Columns of softmax, norms, layouts"""
    tensors: PositiveInt = 20
    """Number of optimizer parameters"""
    tensor_elements: PositiveInt = 4096
    """Elements per parameter"""
    copy_bytes: PositiveInt = 1048576
    """Size of a copy in bytes"""
    graphs: PositiveInt = 2
    """Independent autograd graphs"""
    layers: PositiveInt = 16
    """Linear layers per graph"""
    layer_size: PositiveInt = 128
    """Features per layer"""


class RoutedSection(Section):
    """Experts of a layer, and their router."""

    experts: PositiveInt = 8
    """Number of experts over all ranks"""
    top_k: PositiveInt = 2
    """Experts per token"""
    width: PositiveInt = 64
    """Model width (features per token)"""
    hidden: PositiveInt = 128
    """Hidden width of an expert"""
    balancing: Literal["none", "aux-loss", "z-loss"] = "aux-loss"
    """Load balancing loss of the router"""
    balancing_weight: PositiveFloat = 0.01
    """Weight of the balancing loss"""
    z_loss_weight: PositiveFloat | None = None
    """Weight of a z-loss added to the balancing loss; null: none"""

    @model_validator(mode="after")
    def _check_routing(self) -> Self:
        if self.top_k > self.experts:
            raise ValueError(
                f"top_k={self.top_k} exceeds experts={self.experts}; allowed: top_k from 1 to "
                f"{self.experts}"
            )
        if self.balancing == "z-loss" and self.z_loss_weight is not None:  # added to itself
            raise ValueError(
                f"z_loss_weight={self.z_loss_weight:g} beside balancing=z-loss, which is weighted "
                "by balancing_weight; allowed: z_loss_weight beside balancing=aux-loss or none, "
                "or null"
            )
        return self


class MoeSection(RoutedSection):
    """A mixture-of-experts layer."""

    multiples: ClassVar = {"hidden": "tensor_parallel"}

    tokens: PositiveInt = 256
    """Tokens per rank and call"""
    capacity_factor: PositiveFloat | None = None
    """Tokens per expert relative to an even share; null: no limit, no dropped token"""
    dispatcher: Literal["auto", "local", "all-gather", "all-to-all"] = "auto"
    """Token dispatcher; auto: local, or all-to-all between ranks"""
    expert_kind: Literal["sequential", "grouped", "te-grouped"] = "grouped"
    """Expert computation on a rank"""
    expert_parallel: PositiveInt | None = None
    """Ranks that share the experts; null: all"""
    tensor_parallel: PositiveInt = 1
    """Ranks that share each expert's hidden features"""
    rank_sorter: str = "none"
    """Assignment order of experts to ranks"""
    device_initialisation: bool = False
    """Initialise weights on the device instead of the CPU"""
    pinned_cache: PositiveInt | None = None
    """Experts kept on the device, with the others in pinned memory; null: all"""
    graph_capture: bool = False
    """Replay the router, which has static shapes, as a CUDA graph"""


class ProfilingSection(Section):
    """torch.profiler on extra steps after the measurement, never during it."""

    enabled: bool = False
    """Enable; also set by --profile"""
    steps: PositiveInt = 3
    """Number of profiled steps, after one that is not traced"""
    record_shapes: bool = False
    """Record input shapes"""
    with_stack: bool = False
    """Record Python stacks"""


CompileScope = Literal["model", "blocks", "step"]


class ExperimentSection(Section):
    """Notes and seed of a run; preset and device are set by options."""

    notes: Annotated[str, AfterValidator(redact)] = ""
    """Free text stored with the results"""
    seed: int = Field(default=0, ge=0)
    """Seed of model, data and check"""
    preset: Preset = "tiny"
    """Set by --preset"""
    device: str = "cpu"
    """Device type; set by --device"""


class ModelSection(Section):
    """The workload and how its model is built; workloads add their own keys."""

    revision: ClassVar[int] = 1
    """Revision of the workload's computation; not a key. Results of different ones are not
    comparable."""

    name: str | None = None
    """Workload"""
    channels_last: bool = False
    """Use the NHWC memory format for image models"""
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = "none"
    """torch.compile mode"""
    compile_backend: str = "inductor"
    """torch.compile backend"""
    compile_scope: CompileScope | None = None
    """What is one compiled region: the model, each block, or forward pass and loss of a step
    (inference: as model); null: blocks under fsdp2, else model"""
    cudnn_benchmark: bool | None = None
    """Enable cuDNN autotuning; null: yes"""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass"""
    init_device: Literal["auto", "cpu"] = "auto"
    """Device that draws the weights; auto: the measured one, or the CPU for training to a target"""


class DataSection(Section):
    """Data source and loading."""

    source: str = "synthetic"
    """synthetic, a bundled data set, images from a path, or the saved inputs of a failed check"""
    path: str | None = None
    """images: CIFAR-10 (binary), MNIST, or a folder with one subfolder per class; saved: inputs.pt
    of --repro"""
    workers: int = Field(default=0, ge=0)
    """images: number of loader processes"""
    pin_memory: bool | None = None
    """images: load into pinned memory; null: on CUDA"""
    prefetch_factor: PositiveInt = 2
    """images: batches prefetched per worker"""
    persistent_workers: bool = True
    """images: keep workers between epochs"""
    global_batch_size: PositiveInt | None = None
    """Samples per step over all ranks (strong scaling), instead of per rank"""


_SCHEDULE_STEPS: Final = 1000
"""Length of the schedule where the number of steps to be trained is open."""


class TrainingSection(Section):
    """The training step, and the untimed training that checks it."""

    batch_size: PositiveInt | Literal["auto"] = 8
    """Samples per batch and rank (weak scaling); auto: the most that fit"""
    optimizer: str = "sgd"
    """The optimizer"""
    learning_rate: PositiveFloat = 0.01
    """Base learning rate, before the schedule's factor"""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """SGD momentum"""
    weight_decay: float = Field(default=0.0, ge=0)
    """Optimizer weight decay"""
    fused: bool | None = None
    """Use the fused optimizer; null: on accelerators"""
    scheduler: str = "constant"
    """Learning rate schedule"""
    schedule_steps: PositiveInt | None = None
    """Length of the schedule in steps; null: the steps of the epochs, max_steps on the way to a
    target, else 1000"""
    gradient_clipping: PositiveFloat | None = None
    """Maximum global gradient norm"""
    accumulation_steps: PositiveInt = 1
    """Batches per optimizer step"""
    steps: PositiveInt | None = None
    """Untimed steps on one fixed batch before measuring; null: 20"""
    epochs: PositiveInt | None = None
    """Untimed epochs before measuring, instead of steps"""
    log_every: PositiveInt = 5
    """Record the untimed training in the journal every N steps"""
    loss_drop: Annotated[float, Field(gt=0, le=1)] | None = None
    """Required loss reduction: last three losses relative to the first three"""
    evaluate: bool = False
    """Evaluate on held-out samples after the untimed training"""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Convergence: train until held-out samples reach this accuracy"""
    target_loss: PositiveFloat | None = None
    """Convergence: train until held-out samples reach this loss; set one target"""
    evaluate_every: PositiveInt | None = None
    """Convergence: steps between evaluations; null: an epoch"""
    max_steps: PositiveInt = 1000
    """Convergence: maximum number of steps, an error if exceeded"""
    parity_band: PositiveFloat = 0.05
    """Convergence: maximum relative error of the final loss"""
    deterministic: bool = False
    """Use deterministic algorithms only; unsupported ones skip the benchmark"""
    checkpoint: bool = False
    """Write latest and best checkpoints of the untimed training"""
    resume: str | None = None
    """Checkpoint to resume from: a manifest, or a folder with a latest checkpoint"""
    _loss_drop_ignored: str | None = PrivateAttr(default=None)

    @property
    def schedule_length(self) -> int:
        """Optimizer steps after which the schedule ends; derived, not a key."""
        if self.schedule_steps is not None:
            return self.schedule_steps
        has_target = self.target_accuracy is not None or self.target_loss is not None
        return self.max_steps if has_target else _SCHEDULE_STEPS

    @property
    def samples(self) -> int:
        """Samples per batch and rank.

        Raises:
            Unsupported: the batch size is ``auto``, and nothing has fitted it.
        """
        if self.batch_size == "auto":
            raise Unsupported(
                "training.batch_size=auto: fitted only for benchmarks with the fixture trainer or "
                "inference, or gpubench.train; state a number, training.batch_size=N"
            )
        return self.batch_size

    def with_samples(self, samples: int) -> Self:
        """A copy with `samples` per batch and rank."""
        return self.model_copy(update={"batch_size": samples})

    @property
    def loss_drop_ignored(self) -> str | None:
        """Reason a file's ``loss_drop`` is ignored; derived, not a key."""
        return self._loss_drop_ignored

    def without_loss_drop(self, cause: str) -> Self:
        """A copy without the stale ``loss_drop``."""
        copy = self.model_copy(update={"loss_drop": None})
        copy._loss_drop_ignored = cause
        return copy


class PrecisionSection(Section):
    """Numeric precision; its name is set by --precision."""

    name: str = "fp32"
    """Set by --precision"""
    init_scale: PositiveFloat = 65536.0
    """Initial scale of the GradScaler"""
    growth_interval: PositiveInt = 2000
    """Steps between scale increases"""


class DistributedSection(Section):
    """Ranks and process group."""

    world_size: PositiveInt = 1
    """Set by --world-size or torchrun"""
    backend: Literal["auto", "gloo", "nccl", "xccl"] = "auto"
    """Backend of the process group"""
    parallelism: str = "auto"
    """auto: ddp on several ranks"""
    scaling: Literal["weak", "strong"] = "weak"
    """Set by data.global_batch_size: strong if given"""
    bucket_cap_mb: PositiveFloat | None = None
    """ddp: bucket size in MiB; null: torch's default"""
    gradient_as_bucket_view: bool = True
    """ddp: let gradients be views into the buckets, which saves a copy"""
    static_graph: bool = False
    """ddp: assert that every step uses the same parameters"""
    reshard_after_forward: bool | None = None
    """fsdp2: free gathered parameters after the forward; null: except the root's"""
    fsdp_param_dtype: Literal["bf16", "fp16"] | None = None
    """fsdp2: dtype for gathering and computing; null: the parameters' dtype"""
    fsdp_reduce_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """fsdp2: dtype for gradient reduction; null: the compute dtype"""
    pipeline_schedule: Literal["GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"] = "1F1B"
    """pipeline: schedule of microbatches through the stages"""
    pipeline_microbatches: PositiveInt | None = None
    """pipeline: microbatches per batch; null: at least the number of stages"""
    threads: PositiveInt | None = None
    """CPU threads per rank; null: your OMP_NUM_THREADS, else an equal share of the host's cores"""
    largest_message_bytes: PositiveInt | None = None
    """Skip collectives on larger messages; null: no limit"""
    share_device: bool = False
    """Run all ranks of a host on one device over gloo, as a simulator"""
    failure_grace_s: PositiveFloat = 5.0
    """Timeout for the other ranks once a rank has failed"""
    divergence_s: PositiveFloat = 60.0
    """Timeout for the other ranks once a rank has passed"""


PARALLELISM_OF: Final = {
    **dict.fromkeys(("bucket_cap_mb", "gradient_as_bucket_view", "static_graph"), "ddp"),
    **dict.fromkeys(("reshard_after_forward", "fsdp_param_dtype", "fsdp_reduce_dtype"), "fsdp2"),
    **dict.fromkeys(("pipeline_schedule", "pipeline_microbatches"), "pipeline"),
}
"""Keys of section ``distributed`` that only one parallelism reads."""


class MeasureSection(Section):
    """Warm-up, stopping rule, and timing."""

    profile: Literal["quick", "full"] | None = None
    """Defaults of this section: quick for every change, full for nightly runs"""
    by: Literal["ci", "steps", "time"] = "ci"
    """Stopping rule"""
    ci_half_width: PositiveFloat = 0.01
    """by ci: relative half-width of the median's confidence interval"""
    confidence: float = Field(default=0.95, gt=0, le=0.9999)
    """Confidence level of the interval"""
    min_time_s: PositiveFloat = 0.2
    """by ci: minimum measuring time"""
    min_rounds: PositiveInt = 10
    """by ci: minimum number of rounds"""
    max_rounds: PositiveInt = 400
    """by ci: maximum number of rounds, once min_time_s has passed; half suffices for an interval"""
    max_time_s: PositiveFloat = 3.0
    """by ci: time limit; ten times as long before min_rounds"""
    steps: PositiveInt = 50
    """by steps: calls per rank"""
    time_s: PositiveFloat = 3.0
    """by time: measuring time"""
    round_s: PositiveFloat = 0.001
    """Minimum duration of a round"""
    warmup_iterations: PositiveInt = 3
    """Minimum number of warm-up calls"""
    warmup_s: PositiveFloat | None = None
    """Minimum warm-up time; null: 0.5 on an accelerator, 0.1 on a CPU"""
    warmup_max_rounds: PositiveInt = 100
    """Maximum warm-up rounds, flagged if not steady by then"""
    warmup_max_s: PositiveFloat = 10.0
    """Maximum warm-up time, flagged if not steady by then; up to 1e-6: none"""
    steady_tolerance: PositiveFloat = 0.02
    """Steady: first and last third of the rounds differ by less than this, or noise"""
    timing: Literal["auto", "step", "kernel"] = "auto"
    """kernel: time single CUDA kernels; auto: the mark's on CUDA, else step"""
    cache: Literal["hot", "cold"] = "hot"
    """kernel: state of the L2 cache"""
    rounds_file: str | None = None
    """JSON file with a fixed number of rounds per benchmark; no stopping rule"""
    keep_durations: PositiveInt = 1_000_000
    """Maximum number of durations kept; beyond it, keep round medians and a sample, flagged"""
    timeout_s: PositiveFloat | None = None
    """Timeout; null: the mark's, else the ini file's"""
    throttle: Literal["flag", "wait", "fail"] = "flag"
    """On a throttled GPU: flag the numbers; wait before measuring, for up to 60 s; or fail"""
    gc: bool = False
    """Keep Python's garbage collector enabled while timing"""
    check: bool | None = None
    """Compare the first training steps with fp32; null: yes, 1 step in full; false: no check"""
    check_steps: PositiveInt = 5
    """check: steps compared; for preset full one, unless check is true"""
    check_loss_band: PositiveFloat | None = None
    """check: maximum relative error of a loss; null: the precision's default"""
    check_gradient_band: PositiveFloat | None = None
    """check: largest relative error of a gradient norm; null: by precision"""

    @property
    def required_rounds(self) -> int:
        """Minimum number of rounds, capped by a stated maximum if it is the default."""
        return min(self.min_rounds, self.max_rounds)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        """Validate stated minima against stated maxima; defaults are capped instead."""
        if self.by != "ci":
            return self
        stated = self.model_fields_set
        bounds = [("min_time_s", "max_time_s")]
        if "max_rounds" in stated:
            bounds.append(("min_rounds", "max_rounds"))
        for lower, upper in bounds:
            minimum, maximum = getattr(self, lower), getattr(self, upper)
            if lower in stated and minimum > maximum:
                raise ValueError(
                    f"measure.{lower}={minimum:g} exceeds measure.{upper}={maximum:g}; "
                    f"allowed: at most {upper}"
                )
        return self


class SlurmSection(Section):
    """What ``sbatch`` is given; without a value SLURM's own default holds."""

    partition: str | None = None
    """Partition, ``--partition``."""
    account: str | None = None
    """Account that is charged, ``--account``."""
    gres: str | None = None
    """Generic resources of each node, ``--gres``, for example ``gpu:8``."""
    time: str | None = None
    """Time limit of a job, ``--time``: minutes, or ``H:MM:SS``."""
    arguments: tuple[str, ...] = ()
    """Further options of ``sbatch``, for example ``[--qos=low, --constraint=h100]``."""


class EngineSection(Section):
    """Where and how the shards of ``--on`` run."""

    shards: PositiveInt | None = None
    """Number of shards; null: one for each slot of the engine."""
    nodes: PositiveInt = 1
    """Nodes of one shard; on several, torchrun starts the ranks."""
    ranks_per_node: PositiveInt = 1
    """Ranks that torchrun starts on each of several nodes."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a benchmark is begun again whose node was lost, or whose time was up."""
    slurm: SlurmSection = SlurmSection()
    """What ``sbatch`` is given, with ``--on=slurm``."""


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
    engine: EngineSection = Field(default=EngineSection(), exclude=True)
    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def sources(self) -> Mapping[str, str]:
        """Where keys come from, by dot key: a file, a mark or an option; others are defaults."""
        return self._sources

    def with_sources(self, sources: Mapping[str, str]) -> Self:
        """A copy with the `sources` of its keys."""
        copy = self.model_copy()
        copy._sources = sources
        return copy

    def with_samples(self, samples: int) -> Self:
        """A copy with `samples` per batch and rank."""
        training = self.training.with_samples(samples)
        return self.model_copy(update={"training": training})

    @property
    def init_device_type(self) -> str:
        """Type of the device that draws the weights; see ``model.init_device``.

        A training to a target takes the same course from the same weights, on any device.
        """
        has_target = self.training.target_accuracy or self.training.target_loss
        draws_on_cpu = self.model.init_device == "cpu" or has_target is not None
        return "cpu" if draws_on_cpu else self.experiment.device
