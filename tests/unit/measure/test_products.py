"""The census of the types in which a step multiplies."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpubench_plugin.measure.probes.operations import Census, take_census

HALF = torch.bfloat16
MATRIX = torch.ones(4, 4)


def under_autocast(run):
    def step():
        with torch.autocast("cpu", dtype=HALF):
            return run()

    return step


def attention():
    query = torch.ones(1, 1, 4, 8, dtype=HALF)
    return nn.functional.scaled_dot_product_attention(query, query, query)


def convolution():
    return nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3))


def inferred():
    with torch.inference_mode():
        return nn.functional.linear(MATRIX, MATRIX)


def trained():
    weight = torch.ones(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=HALF):
        loss = (MATRIX @ weight).sum()
    loss.backward()


@pytest.mark.parametrize(
    ("step", "products"),
    [
        (lambda: MATRIX @ MATRIX, {"fp32": 1}),
        (under_autocast(lambda: MATRIX @ MATRIX), {"bf16": 1}),
        (lambda: torch.bmm(MATRIX[None].double(), MATRIX[None].double()), {"fp64": 1}),
        (lambda: MATRIX[0] @ MATRIX[0], {"fp32": 1}),
        (lambda: nn.functional.linear(MATRIX, MATRIX, MATRIX[0]), {"fp32": 1}),
        (inferred, {"fp32": 1}),
        (under_autocast(inferred), {"bf16": 1}),
        (convolution, {"fp32": 1}),
        (attention, {"bf16": 1}),
        (trained, {"bf16": 2}),
        (lambda: torch.softmax(MATRIX, 0), {}),
    ],
)
def test_products_are_counted_by_type(step, products):
    """As they run: autocast is seen, also in modes without gradients, and backward passes are."""
    assert take_census(step).products == products


def test_compiled_code_is_seen_as_it_was_written():
    """It would be one operation, or none; it is neither compiled again nor forgotten."""
    torch.compiler.reset()
    compiled = torch.compile(lambda: MATRIX @ MATRIX, backend="eager")
    compiled()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert take_census(under_autocast(compiled)).products == {"bf16": 1}
    compiled()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_a_call_that_fails_tells_nothing():
    """It may have nothing left to read; what was measured stays."""
    assert take_census(iter(()).__next__) is None


@pytest.mark.parametrize(
    ("products", "others", "claim", "borne_out"),
    [
        ({"bf16": 1, "fp32": 9}, {"fp32"}, "bf16", True),
        ({"fp32": 9}, {"bf16", "fp32"}, "bf16", False),
        ({"bf16": 9}, {"fp32"}, "fp32", False),
        ({"fp32": 1}, set(), "tf32", True),
        ({}, {"bf16", "fp32"}, "bf16", True),
        ({}, {"fp32"}, "fp16", False),
        ({}, set(), "fp16", False),
    ],
)
def test_products_bear_a_claim_out_and_without_any_all_operations(
    products, others, claim, borne_out
):
    """Where torch did nothing, nothing bears it out."""
    census = Census()
    census.products.update(products)
    census.dtypes.update(others)
    assert census.confirms(claim) is borne_out
