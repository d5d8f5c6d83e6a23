"""Comparison of a layer on its ranks with one process that has all tokens and all experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from gpubench_plugin.errors import CorrectnessError
from gpubench_plugin.workloads.moe.dispatchers.base import compute_dtype
from gpubench_plugin.workloads.moe.experts.base import Experts, gated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.workloads.moe.construction import Construction
    from gpubench_plugin.workloads.moe.groups import Placement
    from gpubench_plugin.workloads.moe.layer import MoELayer
    from gpubench_plugin.workloads.moe.routing import Router


def reference(
    shares: Sequence[Tensor], *, router: Router, w_in: Tensor, w_out: Tensor
) -> tuple[list[Tensor], Tensor]:
    """The outputs for the `shares` of tokens that ranks have, and the sum of balancing losses.

    One process computes them without any of the layer's machinery.

    All experts stand in `w_in` and `w_out`, in the order of their numbers. Each share is routed by
    itself, as its rank would; then expert after expert computes all tokens that visit it.
    """
    routings = [router(share) for share in shares]
    tokens = torch.cat(list(shares))
    inputs = tokens.to(compute_dtype(tokens))
    experts = torch.cat([routing.experts for routing in routings])
    weights = torch.cat([routing.weights for routing in routings])
    if routings[0].kept is not None:
        kept = torch.cat([routing.kept for routing in routings if routing.kept is not None])
        experts = torch.where(kept, experts, -1)
    total = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
    for expert in range(len(w_in)):
        token, choice = (experts == expert).nonzero(as_tuple=True)
        computed = gated(inputs[token] @ w_in[expert]) @ w_out[expert]
        total = total.index_add(0, token, computed.float() * weights[token, choice].unsqueeze(1))
    outputs = total.to(tokens.dtype).split([len(share) for share in shares])
    return list(outputs), torch.stack([routing.balancing_loss for routing in routings]).sum()


TOLERANCES: Final = {"fp32": 2e-6, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1.6e-2}
"""The largest relative error by what products compute in: some roundings of that type.

With two experts per token output, dX and dW come out exactly; sums over more, or over ranks, are
taken in another order.
"""


def compared(
    made: Construction,
    placement: Placement,
    layer: MoELayer,
    *,
    tokens: Tensor,
    output: Tensor | None,
    with_gradients: bool,
) -> dict[str, Any]:
    """The relative errors of the `layer`'s last call, in the norm of each tensor.

    Nothing is exchanged: every rank computes all ranks' tokens by itself.

    Raises:
        CorrectnessError: one is beyond the tolerance.
    """
    assert output is not None
    expected = _expected(made, placement, with_gradients=with_gradients)
    found = {"output": output}
    if with_gradients:
        found |= _gradients(layer, tokens)
    errors = {name: _error(found[name], expected[name]) for name in found}
    tolerance = TOLERANCES[made.precision.compute_dtype]
    for name, error in errors.items():
        if not error <= tolerance:  # also where it is not a number
            raise CorrectnessError(
                f"the layer's {name} differs from one process' by {error:.2e} of its norm; "
                f"allowed: {tolerance:.0e}"
            )
    return {
        "error_against_one_process": errors,
        "tolerance": tolerance,
        "experts_of_rank": list(placement.own),
    }


def _gradients(layer: MoELayer, tokens: Tensor) -> dict[str, Tensor]:
    experts = layer.experts
    assert isinstance(experts, Experts)
    (router,) = (parameter.grad for parameter in layer.router.parameters())  # type: ignore[attr-defined] # a module
    assert tokens.grad is not None
    assert router is not None
    inwards, outwards = experts.gradients()
    return {"dX": tokens.grad, "dW_in": inwards, "dW_out": outwards, "dRouter": router}


def _expected(
    made: Construction, placement: Placement, *, with_gradients: bool
) -> dict[str, Tensor]:
    """The output for this rank's tokens, and its part of the gradients."""
    own = made.groups.tokens
    shares = [made.tokens(index).requires_grad_() for index in range(own.size)]
    router = made.router()
    w_in, w_out = (
        made.precision.convert_batch(weight).to(made.device).requires_grad_()
        for weight in made.all_weights()
    )
    with torch.set_grad_enabled(with_gradients), made.precision.forward_context(made.device):
        outputs, balancing = reference(shares, router=router, w_in=w_in, w_out=w_out)
    if not with_gradients:
        return {"output": outputs[own.index]}
    cotangents = [made.cotangent(index) for index in range(own.size)]
    torch.autograd.backward((*outputs, balancing), (*cotangents, torch.ones_like(balancing)))
    gradients = (shares[own.index].grad, router.weight.grad, w_in.grad, w_out.grad)
    tokens, routing, inwards, outwards = (_given(gradient) for gradient in gradients)
    mine = list(placement.own)
    index, of = made.groups.tensor.index, made.groups.tensor.size
    columns = slice(index * made.section.hidden // of, (index + 1) * made.section.hidden // of)
    halves = inwards[mine].unflatten(2, (2, -1))[..., columns]
    return {
        "output": outputs[own.index].detach(),
        "dX": tokens,
        "dW_in": halves.flatten(2),
        "dW_out": outwards[mine][:, columns],
        "dRouter": routing,
    }


def _given(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    return gradient


def _error(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of what is expected."""
    difference = (found.double() - expected.double()).norm()
    return float(difference / expected.double().norm().clamp_min(torch.finfo(torch.double).tiny))
