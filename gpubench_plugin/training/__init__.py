"""The training step and the forward pass as things to measure, and what they are made of."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.training.bands import BANDS, BATCH_NORMALISED, bands_of
    from gpubench_plugin.training.check import (
        LossHistory,
        Recorded,
        loss_drop,
        require_gradients,
        require_updates,
        scalar,
    )
    from gpubench_plugin.training.checkpoint import (
        BEST,
        LATEST,
        Checkpointing,
        Checkpoints,
        Resumption,
    )
    from gpubench_plugin.training.checkpoint_formats import FORMATS, CheckpointIO
    from gpubench_plugin.training.compile import (
        COUNTING,
        EAGER,
        INDUCTOR,
        NAME,
        Counting,
        compiler,
        names,
    )
    from gpubench_plugin.training.compile_study import CompiledStep, captured
    from gpubench_plugin.training.convergence import Convergence, Course, Target
    from gpubench_plugin.training.evaluation import AfterTraining, Evaluation, Evaluator
    from gpubench_plugin.training.generation import TOLERANCE, Decode, Generation, Prefill
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.manifest import (
        FORMAT,
        Manifest,
        differences,
        facts_of,
        refuse,
        sha256_of,
    )
    from gpubench_plugin.training.model import build_model, load_model_state, model_state, run_once
    from gpubench_plugin.training.optimization import Optimization
    from gpubench_plugin.training.reference import Reference
    from gpubench_plugin.training.seeding import (
        deterministic,
        naming_what_is_not_deterministic,
        seeds_of,
    )
    from gpubench_plugin.training.trainer import ExposedCommunication, Trainer

__getattr__ = lazy_names(__name__)
