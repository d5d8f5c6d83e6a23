"""Configuration: YAML files, presets and command line options, validated and resolved."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.config.case import (
        Case,
        comparable,
        comparable_part,
        device_models,
        devices_of,
    )
    from gpubench_plugin.config.files import ConfigurationFile
    from gpubench_plugin.config.layers import PROFILES, Layer, merge, nested
    from gpubench_plugin.config.limits import DEFAULT, Limit, cli_limits
    from gpubench_plugin.config.marks import (
        ACCUMULATED,
        CHANNELS_LAST,
        CHECKPOINTED,
        COMPILED,
        COMPILED_BLOCKS,
        COMPILED_STEP,
        CONTIGUOUS,
        CONVOLUTIONAL_TRAINING,
        FSDP2,
        FULL,
        MOST_SAMPLES,
        ONE_SAMPLE,
        PLAIN,
        SOME_SAMPLES,
        TRAINING,
        BenchmarkMark,
        Preset,
        Timing,
        Variant,
        batch_sizes,
        caches,
        check_precisions,
        convolutional_training_variants,
        executions,
        full_profile_only,
        memory_formats,
        param_variants,
        training_variants,
    )
    from gpubench_plugin.config.options import (
        BENCHMARK_PATHS,
        FLAGS,
        RUN_FILE,
        SECTIONS,
        option_dest,
    )
    from gpubench_plugin.config.parametrization import (
        FIXTURE,
        FOREIGN_FIXTURE,
        PRECISION,
        PRECISION_LEFT,
        fixture_names,
        former_ids,
        is_adopted,
        is_benchmark,
        overriding_fixture,
    )
    from gpubench_plugin.config.project import project_results_dir
    from gpubench_plugin.config.resolution import needs_memory_gib, resolve
    from gpubench_plugin.config.resolve_case import CaseFactory, check_marks
    from gpubench_plugin.config.resolved_file import to_yaml
    from gpubench_plugin.config.rounds_file import FixedRounds, to_text
    from gpubench_plugin.config.sections import (
        SCHEDULERS,
        CompileScope,
        Configuration,
        DataSection,
        DiffusionSection,
        DistributedSection,
        ExperimentSection,
        GateSection,
        InferenceSection,
        MeasureSection,
        ModelSection,
        MoeSection,
        PositiveFloat,
        PositiveInt,
        PrecisionSection,
        ProfilingSection,
        Section,
        TrainingSection,
        refuse_second_z_loss,
    )
    from gpubench_plugin.config.settings import Settings
    from gpubench_plugin.config.table_options import AUTO_TABLE, BY_FILE, BY_FUNCTION, TableOptions

__getattr__ = lazy_names(__name__)
