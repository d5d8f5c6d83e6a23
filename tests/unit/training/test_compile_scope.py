"""What becomes one compiled region: the model, each block, or the step."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

import pytest
import torch
from torch import Tensor, nn

from benchmarks.system.compile_study import capture_counters
from gpubench_plugin.config.sections import CompileScope, ModelSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.training.compile import (
    ModelWithLoss,
    call_compiler,
    loss_function,
)
from gpubench_plugin.training.model import build_model, load_model_state, model_state
from gpubench_plugin.workloads.base import Workload, blocks_of
from tests.support.counting_backend import COUNTS, GRAPHS, NAME
from tests.support.exhaustive import shown
from tests.support.presets import preset_of, workload_of

CPU = torch.device("cpu")
SCOPES = get_args(CompileScope)
SMALL: Mapping[str, tuple[str, ...]] = {
    "llama": ("model.width=32", "model.intermediate_size=64", "model.sequence_length=16"),
    "resnet18": ("model.hidden_sizes=[8, 8, 16, 16]", "model.embedding_size=8"),
}
INDUCTOR = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(shutil.which("g++") is None, reason="inductor requires g++"),
]


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """Begin and end without compiled code."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Pass(NamedTuple):
    """Loss and gradients of one batch."""

    loss: Tensor
    gradients: Tensor


def compiled_workload(name: str, scope: str | None, *keys: str, backend: str = "eager") -> Any:
    """The workload of a tiny preset, compiled in `scope`; None for eager."""
    compile = "model.compile=default", f"model.compile_scope={scope}"
    overrides = (*compile, f"model.compile_backend={backend}") if scope else ()
    return workload_of(preset_of(name, "tiny", *SMALL.get(name, ()), *keys, *overrides))


def built(workload: Workload[Any]) -> nn.Module:
    return build_model(
        workload,
        seed=0,
        device=CPU,
        precision=catalog.load("precision", "fp32")(),
    )


def passed(workload: Workload[Any], module: nn.Module, samples: int = 4) -> Pass:
    generator = torch.Generator().manual_seed(1)
    batch = workload.synthetic_batch(samples, device=CPU, generator=generator)
    module.zero_grad()
    loss = loss_function(module, workload)(module, batch)
    loss.backward()
    gradients = [p.grad.flatten() for p in module.parameters() if p.grad is not None]
    return Pass(loss.detach(), torch.cat(gradients))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=INDUCTOR)])
@pytest.mark.parametrize("name", shown("mlp", exhaustively=SMALL))
@pytest.mark.slow
def test_loss_and_gradients_are_those_of_eager_in_every_scope(name: str, backend: str) -> None:
    """Capturing changes nothing, inductor no more than rounding."""
    eager = compiled_workload(name, None)
    expected = passed(eager, built(eager).train())
    for scope in SCOPES:
        workload = compiled_workload(name, scope, backend=backend)
        found = passed(workload, built(workload).train())
        error = (found.gradients - expected.gradients).norm() / expected.gradients.norm()
        # With few values per channel, normalization magnifies rounding.
        assert error <= (1e-6 if backend == "aot_eager" else 1e-3)
        torch.testing.assert_close(found.loss, expected.loss, rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys", "graphs"),
    [
        ("llama", ("model.layers=4",), 1),
        ("llama", ("model.layers=1",), 1),
        ("gpt2", (), 1),
        # The first stage's two blocks are equal; of the others the first is wider.
        ("resnet18", ("model.hidden_sizes=[16, 32, 64, 128]", "model.embedding_size=16"), 7),
        ("resnet50", (), 8),
    ],
)
def test_equal_blocks_are_compiled_once(name: str, keys: tuple[str, ...], graphs: int) -> None:
    """There are as many graphs as kinds of blocks, and none more in the next step."""
    workload = compiled_workload(name, "blocks", *keys)
    module, before = built(workload).train(), capture_counters()
    for _ in range(2):
        passed(workload, module)
        assert (capture_counters() - before)["graphs"] == graphs


@pytest.mark.slow
def test_shapes_of_blocks_are_static() -> None:
    """Blocks of one class in other sizes have graphs of their own without symbolic sizes."""
    symbolic: list[object] = []

    @torch._dynamo.register_backend(name="gpubench-sizes")
    def sizes(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        symbolic.extend(value for value in inputs if isinstance(value, torch.SymInt))
        return graph.forward

    workload = compiled_workload("resnet50", "blocks", backend="gpubench-sizes")
    passed(workload, built(workload).train())
    assert symbolic == []


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(
    "recompile_limit" not in inspect.signature(torch.compile).parameters,
    reason="this torch has one limit for all",
)
def test_many_kinds_of_blocks_stay_compiled() -> None:
    """Eight kinds in another batch size and in eval mode exceed torch's own limit of eight."""
    workload = compiled_workload("resnet50", "blocks")
    module, before = built(workload).train(), capture_counters()
    for samples, training in ((4, True), (6, True), (4, False)):
        passed(workload, module.train(training), samples)
    assert (capture_counters() - before)["graphs"] == 3 * 8


def test_the_loss_is_in_the_region_of_the_step_alone() -> None:
    """The graph of the step calls the cross entropy, and that of the model does not."""
    for scope in SCOPES:
        COUNTS.clear()
        workload = compiled_workload("mlp", scope, backend=NAME)
        passed(workload, built(workload))
        assert COUNTS["cross_entropy"] == (scope == "step")
        assert COUNTS["linear"] == 3
        torch.compiler.reset()


def test_forward_pass_of_a_step_is_that_of_the_model() -> None:
    """A model compiled with its loss also returns logits, compiled without the loss."""
    COUNTS.clear()
    eager, workload = compiled_workload("mlp", None), compiled_workload("mlp", "step", backend=NAME)
    batch = workload.synthetic_batch(2, device=CPU)
    logits = workload.forward(built(workload), batch)
    torch.testing.assert_close(logits, eager.forward(built(eager), batch))
    assert (COUNTS[GRAPHS], COUNTS["cross_entropy"]) == (1, 0)


@pytest.mark.parametrize("scope", SCOPES)
def test_checkpoints_fit_every_scope(scope: CompileScope) -> None:
    """Names are those of the bare model, so that another scope and eager take the tensors."""
    eager, compiled = (built(compiled_workload("mlp", s)) for s in (None, scope))
    assert model_state(compiled).keys() == eager.state_dict().keys()
    with torch.no_grad():
        for parameter in eager.parameters():
            parameter.add_(1)
    load_model_state(compiled, model_state(eager))
    assert all(map(torch.equal, compiled.parameters(), eager.parameters()))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_captured_graphs_do_not_overwrite_a_loss(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer keeps losses of several steps, of which a captured graph has one address."""
    address = torch.zeros(())

    def compile(function: Any, **_: Any) -> Any:
        return lambda *args: address.add_(1)

    monkeypatch.setattr(torch, "compile", compile)
    workload = compiled_workload("mlp", None)
    section = workload.section.model_copy(update={"compile": mode, "compile_scope": "step"})
    module = ModelWithLoss(nn.Linear(1, 1), workload, section)
    batch = workload.synthetic_batch(2, device=CPU)
    losses = [module(batch) for _ in range(3)]
    expected = [3, 3, 3] if mode == "default" else [1, 2, 3]
    assert [int(loss) for loss in losses] == expected


class Bare(Workload[ModelSection]):
    """A model that repeats no layers."""

    def build(self) -> nn.Module:
        """One layer."""
        return nn.Bilinear(1, 1, 1)

    synthetic_batch = forward = loss = None  # type: ignore[assignment] # never called


def test_model_without_blocks_is_refused() -> None:
    """Blocks that are asked for must be there; under FSDP2 the whole model stands for them."""
    section = ModelSection(
        name="bare", compile="default", compile_backend="eager", compile_scope="blocks"
    )
    with pytest.raises(Unsupported, match=r"blocks: bare has no blocks.*allowed: model, step"):
        built(Bare(section))
    module = build_model(
        Bare(section.model_copy(update={"compile_scope": None})),
        seed=0,
        device=CPU,
        precision=catalog.load("precision", "fp32")(),
        default_scope="blocks",
    )
    assert list(dict(module.named_parameters())) == ["_orig_mod.weight", "_orig_mod.bias"]


def test_blocks_are_the_entries_of_the_outermost_lists() -> None:
    """A list in a list of blocks is no block, and an entry without parameters neither."""
    inner = nn.ModuleList([nn.Linear(1, 1)])
    model = nn.ModuleDict(
        {"a": nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(1, 1))), "b": inner}
    )
    model["head"] = nn.Linear(1, 1)
    assert [(name, type(block)) for _, name, block in blocks_of(model)] == [
        ("1", nn.Sequential),
        ("0", nn.Linear),
    ]


@pytest.mark.parametrize("scope", SCOPES)
def test_scope_without_compilation_is_refused(scope: CompileScope) -> None:
    """The message names both keys, for models and for generated text."""
    workload = compiled_workload("mlp", None)
    workload.section = workload.section.model_copy(update={"compile_scope": scope})
    said = rf"model\.compile_scope={scope}: nothing is compiled with model\.compile=none"
    with pytest.raises(UsageProblem, match=said):
        built(workload)
    with pytest.raises(UsageProblem, match=said):
        call_compiler(workload.section)


def test_call_that_generates_text_has_no_blocks() -> None:
    """A call is compiled in any other scope, and not at all without compilation."""
    compiled = ModelSection(compile="default", compile_backend="eager")
    assert call_compiler(ModelSection()) is None
    for scope in (None, "model", "step"):
        assert call_compiler(compiled.model_copy(update={"compile_scope": scope})) is not None
    with pytest.raises(Unsupported, match=r"blocks: generation.*allowed: model, step, null"):
        call_compiler(compiled.model_copy(update={"compile_scope": "blocks"}))
