"""Comparison of a distributed MoE layer with a single process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.workloads._micro.checks import relative_error
from gpubench_plugin.workloads.moe.dispatchers import compute_dtype
from gpubench_plugin.workloads.moe.experts import Experts, grad_of, swiglu
from gpubench_plugin.workloads.moe.layer import MoELayer, backward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.workloads.moe.construction import Construction
    from gpubench_plugin.workloads.moe.groups import Placement
    from gpubench_plugin.workloads.moe.routing import Router


def reference(
    shares: Sequence[Tensor], *, router: Router, w_in: Tensor, w_out: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Outputs for the ranks' `shares` of tokens, and the summed balancing loss.

    One process computes them without the layer's code: it routes each share separately, as on its
    rank, then each expert of `w_in` and `w_out` computes all its tokens.
    """
    routings = [router(share) for share in shares]
    tokens = torch.cat(list(shares))
    inputs = tokens.to(compute_dtype(tokens))
    experts = torch.cat([routing.experts for routing in routings])
    weights = torch.cat([routing.weights for routing in routings])
    if masks := [routing.kept_mask for routing in routings if routing.kept_mask is not None]:
        experts = torch.where(torch.cat(masks), experts, -1)
    total = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
    for expert in range(len(w_in)):
        token, choice = (experts == expert).nonzero(as_tuple=True)
        expert_outputs = swiglu(inputs[token] @ w_in[expert]) @ w_out[expert]
        total = total.index_add(
            0, token, expert_outputs.float() * weights[token, choice].unsqueeze(1)
        )
    outputs = total.to(tokens.dtype).split([len(share) for share in shares])
    return list(outputs), torch.stack([routing.balancing_loss for routing in routings]).sum()


TOLERANCES: Final = {"fp64": 2e-6, "fp32": 2e-6, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1.6e-2}
"""Largest relative error by compute dtype: about 4 unit roundoffs in TF32 and 16 bits, 32 in fp32,
in which outputs are summed in fp64 as well; sums over ranks, or over more than two experts, differ
in order."""


def compare(
    built: Construction,
    placement: Placement,
    layer: MoELayer,
    *,
    tokens: Tensor,
    output: Tensor | None,
    with_gradients: bool,
) -> dict[str, Any]:
    """Relative error norms of the `layer`'s last call, by tensor, without communication.

    Raises:
        CorrectnessError: one is beyond the tolerance.
    """
    assert output is not None
    expected = _expected(built, placement, with_gradients=with_gradients)
    actual = {"output": output}
    if with_gradients:
        actual |= _gradients(layer, tokens)
    errors = {name: relative_error([actual[name]], [expected[name]]) for name in actual}
    tolerance = TOLERANCES[built.precision.compute_dtype]
    for name, error in errors.items():
        if not error <= tolerance:  # also where it is not a number
            raise CorrectnessError(
                f"the layer's {name} differs from a single process by {error:.2e} of its norm; "
                f"allowed: {tolerance:.0e}"
            )
    return {
        "error_against_one_process": errors,
        "tolerance": tolerance,
        "experts_of_rank": list(placement.own_experts),
    }


def _gradients(layer: MoELayer, tokens: Tensor) -> dict[str, Tensor]:
    experts = layer.experts
    assert isinstance(experts, Experts)
    (router,) = layer.router.parameters()  # type: ignore[attr-defined] # a module
    grad_in, grad_out = experts.gradients()
    gradients = {"dX": grad_of(tokens), "dRouter": grad_of(router)}
    return {**gradients, "dW_in": grad_in, "dW_out": grad_out}


def _expected(
    built: Construction, placement: Placement, *, with_gradients: bool
) -> dict[str, Tensor]:
    """Expected output for this rank's tokens, and its part of the gradients."""
    token_axis = built.groups.tokens
    shares = [built.tokens(index).requires_grad_() for index in range(token_axis.size)]
    router = built.router()
    w_in, w_out = (
        built.precision.convert_batch(weight).to(built.device).requires_grad_()
        for weight in built.all_weights()
    )
    with torch.set_grad_enabled(with_gradients), built.precision.forward_context(built.device):
        outputs, balancing = reference(shares, router=router, w_in=w_in, w_out=w_out)
    if not with_gradients:
        return {"output": outputs[token_axis.index]}
    cotangents = [built.cotangent(index) for index in range(token_axis.size)]
    backward(outputs, balancing, cotangents)
    own_experts = list(placement.own_experts)
    index, part = built.groups.tensor.index, built.section.hidden // built.groups.tensor.size
    columns = slice(index * part, (index + 1) * part)
    gate_and_up = grad_of(w_in)[own_experts].unflatten(2, (2, -1))[..., columns]
    return {
        "output": outputs[token_axis.index].detach(),
        "dX": grad_of(shares[token_axis.index]),
        "dW_in": gate_and_up.flatten(2),
        "dW_out": grad_of(w_out)[own_experts][:, columns],
        "dRouter": grad_of(router.weight),
    }
