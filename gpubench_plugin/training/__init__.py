"""Training steps and forward passes as benchmark subjects."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.training.bands import BANDS, BATCH_NORMALISED, bands_of, has_batch_norm
    from gpubench_plugin.training.batch_fit import (
        LARGEST,
        RESERVE_BYTES,
        BatchFit,
        BatchTrial,
        fit_batch,
    )
    from gpubench_plugin.training.check import (
        RecordFacts,
        check_loss_drop,
        require_gradients,
        require_scalar_loss,
        require_updates,
        steps_of_check,
    )
    from gpubench_plugin.training.checkpoint import (
        BEST,
        LATEST,
        Checkpoints,
        ResumeFromCheckpoint,
        WriteCheckpoint,
    )
    from gpubench_plugin.training.checkpoint_formats import FORMATS, CheckpointIO
    from gpubench_plugin.training.compile import (
        COUNTING,
        EAGER,
        INDUCTOR,
        NAME,
        CountingBackend,
        backend_names,
        make_compiler,
    )
    from gpubench_plugin.training.compile_scope import (
        ModelWithLoss,
        call_compiler,
        compilation_refusal,
        compile_blocks,
        loss_function,
    )
    from gpubench_plugin.training.compile_study import CompiledStep, capture_counters
    from gpubench_plugin.training.compiled_accuracy import batch_in, exact_results, wider_dtype
    from gpubench_plugin.training.convergence import ReproducibleTraining, Target, TimeToTarget
    from gpubench_plugin.training.evaluation import Evaluation, EvaluationCheck, Evaluator
    from gpubench_plugin.training.generation import TOLERANCE, Decode, Generation, Prefill
    from gpubench_plugin.training.history import EpochHistory, LossHistory, TrainingClock
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.manifest import (
        FORMAT,
        Manifest,
        differences,
        layouts_of,
        refuse_mismatch,
        sha256_of,
    )
    from gpubench_plugin.training.model import (
        build_model,
        load_model_state,
        model_state,
        run_fake_step,
    )
    from gpubench_plugin.training.optimization import Optimization
    from gpubench_plugin.training.reference import Fp32Reference
    from gpubench_plugin.training.seeding import (
        deterministic,
        nondeterminism_errors,
        seeds_of,
    )
    from gpubench_plugin.training.trainer import ExposedCommunication, Trainer

__getattr__ = lazy_names(__name__)
