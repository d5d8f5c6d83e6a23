"""Compiled training step by each backend of torch.compile, with its compilation cost.

Forward, loss and backward of one batch, with the compile time from an empty and from a full disk
cache, graph breaks, recompiles, and the speed-up over eager mode.
"""

from functools import partial
from statistics import median

import pytest

from gpubench_plugin import Unsupported

# Inductor on a CPU runs a C++ compiler for about 15 s.
_HALVES = ("bf16", "bf16-true", "amp", "fp16-true")

compiled = pytest.mark.gpubench_set("model.compile=default")


backends = pytest.mark.parametrize(
    "backend",
    [
        *(
            pytest.param(name, marks=pytest.mark.gpubench_set(f"model.compile_backend={name}"))
            for name in ("eager", "aot_eager", "gpubench-counting", "inductor")
        ),
        "named",
    ],
)


@backends
@compiled
@pytest.mark.gpubench_full(*_HALVES)
@pytest.mark.gpubench(config="mlp")
def test_mlp_compile(compare_with_eager, backend):
    """An MLP; ``named`` is the backend of ``--model.compile_backend``."""
    compare_with_eager()


@backends
@compiled
@pytest.mark.gpubench_full
@pytest.mark.gpubench(config="resnet50")
def test_resnet50_compile(compare_with_eager, backend):
    """ResNet-50, with the same backends."""
    compare_with_eager()


@backends
@compiled
@pytest.mark.gpubench_full
@pytest.mark.gpubench(config="llama")
def test_llama_compile(compare_with_eager, backend):
    """Llama, with the same backends."""
    compare_with_eager()


@pytest.fixture
def compare_with_eager(
    gpubench, gpubench_config, workload, data, precision, torch_device, tolerance, backend
):
    """Measures the compiled step of the configured model against the eager one."""
    from gpubench_plugin.measure.clocks.base import Task
    from gpubench_plugin.measure.loop import clock_for
    from gpubench_plugin.precision._nested import cast_floating
    from gpubench_plugin.training.compile import INDUCTOR, make_compiler
    from gpubench_plugin.training.model import build_model
    from gpubench_plugin.workloads.base import run_fake_step

    from .compile_study import (
        CompiledStep,
        exact_results,
        wider_dtype,
    )

    section = gpubench_config.model
    if backend == "named" and section.compile_backend == INDUCTOR:
        raise Unsupported("no back end is named; add --model.compile_backend=<name>")
    if section.compile_scope not in {None, "model"}:
        raise Unsupported(
            f"model.compile_scope={section.compile_scope}: the cost of compiling is measured for "
            "the whole model; allowed: model, null"
        )
    eager = build_model(
        workload,
        seed=gpubench_config.experiment.seed,
        device=torch_device,
        precision=precision,
        is_eager=True,
    ).train()
    batch = data.fixed_batch()
    size = gpubench_config.training.samples

    def loss(batch, module):
        with precision.forward_context(torch_device):
            return workload.loss(module, batch)

    def exact():
        dtype = wider_dtype(precision.compute_dtype)
        wide_batch = cast_floating(batch, dtype)
        return exact_results(
            lambda module: workload.loss(module, wide_batch),
            eager,
            dtype=dtype,
            device=torch_device,
        )

    study = CompiledStep(
        eager=eager,
        compiled=make_compiler(section),
        loss=partial(loss, batch),
        other_losses=[
            partial(loss, batch.split(part)[0]) for part in (size - 1, size - 2) if part > 0
        ],
        device=torch_device,
        tolerance=tolerance,
        flops_step=partial(run_fake_step, workload, samples=size, backward=True),
        samples=size,
        exact=exact,
    )
    measure_section = gpubench_config.measure
    timing = "step" if measure_section.timing == "auto" else measure_section.timing
    clock = clock_for(torch_device, timing=timing, cache=measure_section.cache)

    def speed_up():
        steps = Task(step=study.eager_step), Task(step=study.step)
        # In turns, so that a drift of the machine affects both; the first one is warm-up.
        turns = [[clock.block(step, durations=4) for step in steps] for _ in range(6)][1:]
        eager_s, compiled_s = (
            median(duration_s for block in blocks for duration_s in block.durations_s)
            for blocks in zip(*turns, strict=True)
        )
        return eager_s / compiled_s

    def measure():
        record = gpubench.record
        record("compile_cold_s", lambda: study.cost.cold_s, unit="s", better="lower")
        record("compile_warm_s", lambda: study.cost.warm_s, unit="s", better="lower")
        record("graphs", lambda: study.cost.graphs, unit="count")
        record("captured_operations", lambda: study.cost.operations, unit="count")
        record("timed_recompiles", lambda: study.recompiles, unit="count", better="lower")
        record(
            "batch_size_recompiles",
            lambda: study.cost.batch_size_recompiles,
            unit="count",
            better="lower",
        )
        record("speedup_over_eager", speed_up, better="higher")
        gpubench(study)

    return measure
