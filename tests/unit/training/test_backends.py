from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gpubench_plugin.config.sections import ModelSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.training.compile import COUNTING, NAME, backend_names, make_compiler


class _Broken(nn.Module):
    """Two captured parts with a call between them that cannot be captured."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return x.sin()


def test_ours_is_among_the_back_ends_of_torch() -> None:
    """Asking for the names registers ours, once, beside torch's."""
    assert {NAME, "inductor", "eager", "aot_eager"} <= set(backend_names())
    assert backend_names() == backend_names()


def test_our_back_end_counts_graphs_and_operations() -> None:
    """A module with one graph break gives two graphs; what they compute is unchanged."""
    torch.compiler.reset()
    COUNTING.operations.clear()
    before = COUNTING.graphs
    x = torch.randn(3)
    module = _Broken()
    compiled = make_compiler(ModelSection(compile="default", compile_backend=NAME))(module)
    assert torch.equal(compiled(x), module(x))
    assert (COUNTING.graphs - before, COUNTING.operations.total()) == (2, 3)
    assert COUNTING.operations["sin"] == 1
    torch.compiler.reset()


def test_nothing_is_compiled_in_mode_none() -> None:
    """The module comes back as it is."""
    module = nn.Linear(2, 2)
    assert make_compiler(ModelSection())(module) is module


@pytest.mark.parametrize(
    ("mode", "backend", "message"),
    [
        ("default", "aot_eagr", r"unknown 'aot_eagr' \(did you mean 'aot_eager'\?\)"),
        ("max-autotune", "aot_eager", "only for inductor, not for model.compile_backend="),
        ("none", "aot_eager", "compilation is off; add --model.compile=default"),
    ],
)
def test_what_would_not_be_compiled_is_refused(mode: Any, backend: str, message: str) -> None:
    """An unknown back end, a mode of another one, and a back end without compiling."""
    with pytest.raises(UsageProblem, match=message):
        make_compiler(ModelSection(compile=mode, compile_backend=backend))
