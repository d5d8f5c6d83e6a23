"""Training of one model that the ranks divide among them, all on the same batch."""

import pytest

SLOW_ON_CPU = pytest.mark.gpubench_full("amp", "fp16-true")
FP32_ON_CPU = pytest.mark.gpubench_full("bf16", "bf16-true", "amp", "fp16-true")


def pipeline(schedule, on_cpu):
    """The case of a pipeline in that order."""
    keys = pytest.mark.gpubench_set(
        "distributed.parallelism=pipeline", f"distributed.pipeline_schedule={schedule}"
    )
    return pytest.param(marks=[keys, on_cpu], id=f"pipeline-{schedule.lower()}")


TENSOR = pytest.param(
    marks=[pytest.mark.gpubench_set("distributed.parallelism=tensor"), SLOW_ON_CPU], id="tensor"
)


@pytest.mark.parametrize(
    (),
    [
        TENSOR,
        pipeline("GPipe", pytest.mark.gpubench_full),
        pipeline("1F1B", SLOW_ON_CPU),
        pipeline("Interleaved1F1B", FP32_ON_CPU),
        pipeline("ZBVZeroBubble", FP32_ON_CPU),
    ],
)
@pytest.mark.gpubench(config="llama-parallel", ranks=">=2")
def test_llama_train_parallel(gpubench, trainer):
    """Forward, loss, backward and optimizer, layers or blocks of them divided among the ranks."""
    gpubench(trainer)
