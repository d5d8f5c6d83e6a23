"""Graph breaks and recompilations, planted and counted, with the line of each."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from gpubench_plugin.measure.probes.graphs import compiled_anew, graphs_of
from gpubench_plugin.measure.probes.places import place_text
from gpubench_plugin.ranks.agreement import RankAgreement

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__)
X = torch.randn(2, 4)
LAYER = nn.Linear(4, 4)


def prints(x: Tensor) -> Tensor:
    y = LAYER(x)
    print(end="")  # noqa: T201 # planted
    return LAYER(y)


def takes_item(x: Tensor) -> Tensor:
    y = LAYER(x)
    scale = y.sum().item()  # planted
    return LAYER(y) if scale > 0 else y


def branches(x: Tensor) -> Tensor:
    y = LAYER(x)
    if y.sum() > 0:  # planted
        y = y + 1
    return LAYER(y)


def breaks(x: Tensor) -> Tensor:
    y = LAYER(x)
    torch._dynamo.graph_break()  # planted
    return LAYER(y)


def helps(x: Tensor) -> Tensor:
    y = prints_inside(LAYER(x))
    return LAYER(y)


def prints_inside(x: Tensor) -> Tensor:
    y = LAYER(x)
    print(end="")  # noqa: T201 # planted in a helper
    return y + 1


def loops(x: Tensor) -> Tensor:
    for _ in range(3):
        x = LAYER(x)
        print(end="")  # noqa: T201 # planted in a loop
    return x


def line_of(marker: str, function: Callable[..., object]) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if line.rstrip().endswith(marker))


@pytest.mark.parametrize(
    ("function", "marked", "marker", "what"),
    [
        (prints, prints, "# planted", "builtin"),
        (takes_item, takes_item, "# planted", "Tensor.item()"),
        (branches, branches, "# planted", "a branch"),
        (breaks, breaks, "# planted", "graph_break()"),
        (helps, prints_inside, "# planted in a helper", "builtin"),
        (loops, loops, "# planted in a loop", "builtin"),
    ],
)
def test_a_graph_break_counts_once_where_it_is(
    function: Callable[[Tensor], Tensor], marked: Callable[..., object], marker: str, what: str
) -> None:
    """Also in a helper, which breaks two functions, and in a loop, whose function runs eagerly."""
    step = torch.compile(function, backend="eager")
    places = compiled_anew(lambda: step(X))
    assert [(len(places["graph_breaks"]), places["recompiles"])] == [(1, [])]
    text = place_text(places["graph_breaks"][0], HERE.parent)
    name = f"{HERE.name}:{line_of(marker, marked)} in {marked.__name__}: "
    assert (text.startswith(name), what in text) == (True, True)


def sums(x: Tensor) -> Tensor:
    return LAYER(x).sum()


def scales(x: Tensor, factor: int) -> Tensor:
    return LAYER(x) * factor


class Switched(nn.Module):
    """A model with an attribute that its code depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(4, 4), "a"

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + len(self.kind)


def of_shapes() -> Callable[[int], object]:
    step = torch.compile(sums, backend="eager")
    return lambda call: step(torch.randn(call + 2, 4))


def of_integers() -> Callable[[int], object]:
    step = torch.compile(scales, backend="eager")
    return lambda call: step(X, call + 1)


def of_attributes() -> Callable[[int], object]:
    model = Switched()
    step = torch.compile(model, backend="eager")

    def call(number: int) -> object:
        model.kind = "a" * (number + 1)
        return step(X)

    return call


def of_types() -> Callable[[int], object]:
    step = torch.compile(torch.sum, backend="eager")
    types = (torch.float32, torch.float64, torch.float16)
    return lambda call: step(X.to(types[call]))


@pytest.mark.parametrize(
    ("made", "count", "function", "what"),
    [
        (of_shapes, 1, "sums", "size mismatch at index 0. expected 2, actual 3"),
        (of_integers, 1, "scales", "changed: factor == 1"),
        (of_attributes, 2, "forward", "changed: self.kind == 'a'"),
        (of_types, 2, "<lambda>", "dtype mismatch. expected Float, actual Double"),
    ],
)
def test_a_recompilation_names_what_changed(
    made: Callable[[], Callable[[int], object]], count: int, function: str, what: str
) -> None:
    """By the function, or by the caller of what torch itself has compiled."""
    step, calls = made(), iter(range(3))
    places = compiled_anew(lambda: step(next(calls)))
    assert (len(places["recompiles"]), places["graph_breaks"]) == (count, [])
    assert len(places["compiled_graphs"]) == count + 1
    text = place_text(places["recompiles"][0], HERE.parent)
    assert text.startswith(f"{HERE.name}:")
    assert f" in {function}: " in text
    assert text.endswith(what)


def trained(model: nn.Module, x: Tensor) -> Callable[[], object]:
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        compiled(x).sum().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize(
    "step",
    [
        trained(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), X),
        trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), torch.randn(2, 3, 8, 8)),
    ],
)
def test_a_clean_step_is_one_graph(step: Callable[[], object]) -> None:
    """A compiled model that is trained has no break, and is compiled once, however often."""
    for _ in range(2):
        places = compiled_anew(step)
        assert {name: len(found) for name, found in places.items()} == {
            "graph_breaks": 0,
            "recompiles": 0,
            "compiled_graphs": 1,
        }


def test_what_was_compiled_before_does_not_count() -> None:
    """Nor is a step called while nothing is compiled, or what it raises an error."""
    torch.compiler.reset()
    calls: list[int] = []
    none = {"graph_breaks": [], "recompiles": [], "compiled_graphs": []}
    assert graphs_of(lambda: calls.append(0), RankAgreement()) == none
    assert calls == []
    for rows in range(2, 5):
        torch.compile(sums, backend="eager")(torch.randn(rows, 4))
    assert graphs_of(lambda: calls.append(0), RankAgreement()) == none
    assert len(calls) == 3
    torch.compile(sums, backend="eager")(X)
    assert graphs_of(lambda: 1 / 0, RankAgreement()) == {}
