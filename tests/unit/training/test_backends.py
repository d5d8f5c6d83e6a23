from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gpubench_plugin.config.sections import ModelSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.training.compile import NAME, backend_names, make_compiler
from tests.support import counting_backend
from tests.support.counting_backend import COUNTS, GRAPHS


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


@pytest.mark.parametrize("name", [NAME, counting_backend.NAME])
def test_our_back_end_runs_graphs_unchanged(name: str) -> None:
    """A module with one graph break computes the same, in two graphs."""
    torch.compiler.reset()
    COUNTS.clear()
    x = torch.randn(3)
    module = _Broken()
    compiled = make_compiler(ModelSection(compile="default", compile_backend=name))(module)
    assert torch.equal(compiled(x), module(x))
    counted = {GRAPHS: 2, "relu": 1, "add": 1, "sin": 1} if name != NAME else {}
    assert counted == COUNTS
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
