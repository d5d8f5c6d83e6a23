from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest
import torch
from torch import Tensor, fx, nn

from benchmarks.system.compile_study import CompiledStep
from gpubench_plugin.config.sections import ModelSection
from gpubench_plugin.core.errors import CorrectnessError, Unsupported
from gpubench_plugin.core.records import Work
from gpubench_plugin.training.compile import make_compiler

pytestmark = pytest.mark.slow


def _silent(event: Mapping[str, object]) -> None:
    pass


def _step(compiled: Callable[[nn.Module], nn.Module]) -> CompiledStep:
    torch.manual_seed(0)
    batch = torch.randn(8, 4)

    def loss(rows: int, module: nn.Module) -> Tensor:
        result: Tensor = module(batch[:rows]).square().mean()
        return result

    return CompiledStep(
        eager=nn.Sequential(nn.Linear(4, 3), nn.Tanh()),
        compiled=compiled,
        loss=partial(loss, 8),
        other_losses=[partial(loss, 4), partial(loss, 2)],
        device=torch.device("cpu"),
        tolerance=1e-5,
        flops_step=lambda: None,
        samples=8,
    )


def _backend(change: Callable[[fx.GraphModule], None]) -> Callable[[nn.Module], nn.Module]:
    """Compiles by a back end that may change the graph, or fail."""

    def backend(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        change(graph)
        graph.recompile()
        return graph.forward

    def compiled(module: nn.Module) -> nn.Module:
        made: nn.Module = torch.compile(module, backend=backend)
        return made

    return compiled


def test_cold_and_warm_compilation_graphs_and_recompiles_are_found() -> None:
    """One graph of two layers, captured again once for all further batch sizes, without breaks."""
    step = _step(make_compiler(ModelSection(compile="default", compile_backend="aot_eager")))
    check = step.prepare(_silent)
    assert (step.cost.graphs, step.cost.graph_breaks, step.cost.operations) == (1, 0, 2)
    assert step.cost.batch_size_recompiles == 1
    assert check.facts["first_step_s"] >= step.cost.cold_s > 0
    assert step.cost.warm_s > 0
    assert check.correctness["relative_error"] <= 1e-6
    assert step.work() == Work(samples=8)


def test_a_capture_in_the_timed_calls_is_a_recompile() -> None:
    """Calls of a known shape capture nothing; forgetting the compiled code makes one."""
    step = _step(make_compiler(ModelSection(compile="default", compile_backend="eager")))
    step.prepare(_silent)
    step.begin()
    step.step()
    assert (step.finish(), step.recompiles) == ({}, 0)
    torch.compiler.reset()
    step.step()
    step.finish()
    assert step.recompiles == 1


def test_a_back_end_that_computes_something_else_is_found() -> None:
    """Another function in the place of tanh changes loss and gradients."""

    def wrong(graph: fx.GraphModule) -> None:
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target is torch.tanh:
                node.target = torch.sin

    step = _step(_backend(wrong))
    with pytest.raises(CorrectnessError, match="differs from the eager one by"):
        step.prepare(_silent)


class InvalidCxxCompiler(RuntimeError):
    """Called as torch's own."""


def test_a_missing_compiler_is_unsupported() -> None:
    """What inductor lacks is named, with what to install; any other error is not hidden."""

    def fail(error: Exception, graph: fx.GraphModule) -> None:
        raise error

    with pytest.raises(Unsupported, match="install g"):
        _step(_backend(partial(fail, InvalidCxxCompiler()))).prepare(_silent)
    with pytest.raises(Exception, match="something else"):
        _step(_backend(partial(fail, RuntimeError("something else")))).prepare(_silent)
