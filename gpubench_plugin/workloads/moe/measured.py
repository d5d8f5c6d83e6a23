"""MoE layer or phase as a benchmark: compared with a single process, FLOPs, phase times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch
from torch import Tensor
from torch import distributed as dist
from torch._subclasses import FakeTensorMode

from gpubench_plugin.core.errors import CorrectnessError, Misuse, Unsupported, invalid_choice
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.devices import timed_s
from gpubench_plugin.workloads._accuracy import relative_error
from gpubench_plugin.workloads.moe.construction import Construction
from gpubench_plugin.workloads.moe.dispatchers import DispatchState, compute_dtype
from gpubench_plugin.workloads.moe.experts import CachedExperts, Experts, Grouped, grad_of, swiglu
from gpubench_plugin.workloads.moe.groups import Placement
from gpubench_plugin.workloads.moe.layer import EXPERTS, PHASES, ROUTER, Stage, backward
from gpubench_plugin.workloads.moe.routing import Router, capacity


def phase_times(stages: list[Stage], *, device: torch.device, calls: int) -> dict[str, float]:
    """Median seconds of each stage over additional `calls`, by name; each stage feeds the next.

    On CUDA by events of the stream, elsewhere by the host's clock. Waiting for other ranks is part
    of a phase that communicates.
    """
    durations_of = _on_stream if device.type == "cuda" else _on_host
    rows = [durations_of(stages) for _ in range(calls)]
    return {name: median(row[index] for row in rows) for index, (name, _) in enumerate(stages)}


def _on_host(stages: list[Stage]) -> list[float]:
    value, times = None, [perf_counter()]
    for _, run in stages:
        value = run(value)
        times.append(perf_counter())
    return [end - start for start, end in pairwise(times)]


def _on_stream(stages: list[Stage]) -> list[float]:
    value, events = None, [torch.cuda.Event(enable_timing=True) for _ in range(len(stages) + 1)]
    events[0].record()
    for (_, run), event in zip(stages, events[1:], strict=True):
        value = run(value)
        event.record()
    events[-1].synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairwise(events)]


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
    backward(outputs, balancing, [built.cotangent(index) for index in range(token_axis.size)])
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


FORWARD: Final = "forward"
FORWARD_BACKWARD: Final = "forward-backward"
INITIALISATION: Final = "initialisation"
PARTS: Final = (FORWARD, FORWARD_BACKWARD, ROUTER, *PHASES, INITIALISATION)
"""Measurable parts of the layer."""

# Calls whose median is a phase's time in the record: odd, and few beside the timed ones.
_PHASE_CALLS: Final = 11


class MoESubject:
    """One `part` of the layer of `construction`; each call of :meth:`step` runs it once.

    ``forward`` and the phases run without gradients; ``forward-backward`` computes those of tokens
    and weights, summed over the ranks that share a weight. A phase has precomputed input.
    ``initialisation`` draws the weights of this rank. Every rank must call it alike.

    Raises:
        Unsupported: the part is a no-op here, or needs gradients of cached experts.
        Misuse: there is no such part.
    """

    def __init__(self, part: str, construction: Construction):
        if part not in PARTS:
            raise Misuse(str(invalid_choice("part of a MoE layer", part, PARTS)))
        section = construction.section
        if section.pinned_cache and part == FORWARD_BACKWARD:
            raise Unsupported(
                "moe.pinned_cache: pinned experts support inference only; measure "
                f"{FORWARD!r}, or set null"
            )
        self.part = part
        self._construction = construction
        self._placement = construction.placement()
        self._layer = construction.layer(self._placement)
        dispatcher = self._layer.dispatcher
        if part in PHASES and part != EXPERTS and dispatcher.is_noop(part):
            raise Unsupported(
                f"the dispatcher {type(dispatcher).__name__} does nothing in phase {part}"
            )
        index = construction.groups.tokens.index
        self._tokens = construction.tokens(index).requires_grad_()
        self._cotangent = construction.cotangent(index)
        self._output: Tensor | None = None
        self._facts: dict[str, float] = {}
        self._rows = 0  # that this rank's experts compute
        self.calls = 0
        self._run: Callable[[], None] = {
            FORWARD_BACKWARD: self._forward_backward,
            INITIALISATION: self._initialise,
        }.get(part, self._forward)

    def step(self) -> None:
        """Run the part once (hot path)."""
        self._run()
        self.calls += 1

    def prepare(self, log: object) -> Check:
        """Compare with a single process with all tokens and experts, untimed.

        Raises:
            CorrectnessError: an error is beyond what the precision explains, or weights drawn on
                the CPU and on the device differ.
        """
        if self.part == INITIALISATION:
            return self._compare_initialisation()
        is_phase = self.part in (ROUTER, *PHASES)
        phase_step = self._single_phase_step(self.part) if is_phase else None
        first_step_s = timed_s(phase_step or self.step, self._construction.device)
        if phase_step is not None:
            self.step()  # all of the layer, whose output is compared
            self._run = phase_step
        expert_input, _ = self._phase_input(EXPERTS)
        with_gradients = not isinstance(self._layer.experts, CachedExperts)
        if with_gradients:
            self._forward_backward()
        self._record_load(expert_input)
        # No communication from here on: no rank waits for one that fails.
        errors = self._compare(with_gradients=with_gradients)
        # Why the host waits in products of the experts that could do without.
        dtype = self._construction.precision.compute_dtype
        reason = self._construction.kind.wait_reason(self._construction.device, dtype)
        waiting = {} if reason is None else {"experts_wait": reason}
        return Check(correctness={**errors, **waiting}, facts={"first_step_s": first_step_s})

    def begin(self) -> None:
        """Reset the cache's hit counts."""
        if isinstance(self._layer.experts, CachedExperts):
            self._layer.experts.reset_counts()

    def finish(self) -> Mapping[str, float]:
        """Phase times (measured now), this rank's load, and dropped tokens.

        Raises:
            CorrectnessError: an output of the last call is not finite.
        """
        if self.part == INITIALISATION:
            return {}
        facts = dict(self._facts)
        if isinstance(experts := self._layer.experts, CachedExperts):
            visits = experts.hits + experts.misses
            facts["expert_cache_hit_fraction"] = experts.hits / max(visits, 1)
        if self.part in (FORWARD, FORWARD_BACKWARD):
            with torch.no_grad(), self._context():
                stages = self._layer.stages(self._tokens)
                times = phase_times(stages, device=self._construction.device, calls=_PHASE_CALLS)
            facts |= {f"phase_{name}_s": seconds for name, seconds in times.items()}
        if self._output is not None and not bool(torch.isfinite(self._output).all()):
            raise CorrectnessError("the layer's output is not finite")
        return facts

    def work(self) -> Work:
        """Tokens of one call on this rank; none for initialisation."""
        if self.part == INITIALISATION:
            return Work()
        # Ranks with the same tokens count them once.
        tensor_size = self._construction.groups.tensor.size
        return Work(tokens=self._construction.section.tokens / tensor_size)

    def flops_step(self) -> None:
        """Router and experts on fake tensors, with the actual number of rows.

        Per token the router has 2·width·experts FLOPs, and each row 6·width·hidden; three times as
        many with the backward pass.
        """
        section, has_backward = self._construction.section, self.part == FORWARD_BACKWARD
        with FakeTensorMode(), torch.set_grad_enabled(has_backward):
            if self.part in (FORWARD, FORWARD_BACKWARD, ROUTER):
                tokens = torch.empty(section.tokens, section.width, requires_grad=has_backward)
                routing = Router(section, torch.empty(section.experts, section.width))(tokens)
                if has_backward:
                    (routing.weights.square().sum() + routing.balancing_loss).backward()
            if self.part in (FORWARD, FORWARD_BACKWARD, EXPERTS):
                part_hidden = section.hidden // section.tensor_parallel
                own_experts = self._placement.per_rank
                inputs = torch.empty(self._rows, section.width, requires_grad=has_backward)
                module = Grouped(
                    torch.empty(own_experts, section.width, 2 * part_hidden),
                    torch.empty(own_experts, part_hidden, section.width),
                )
                output = module(inputs, torch.empty(own_experts, dtype=torch.int64))
                if has_backward:
                    output.backward(torch.ones_like(output))

    def _context(self) -> Any:
        return self._construction.precision.forward_context(self._construction.device)

    def _forward(self) -> None:
        with torch.no_grad(), self._context():
            self._output, _ = self._layer(self._tokens)

    def _forward_backward(self) -> None:
        self._tokens.grad = None
        self._layer.zero_grad()
        with self._context():
            output, balancing = self._layer(self._tokens)
        backward((output,), balancing, (self._cotangent,))
        self._sum_gradients()
        self._output = output.detach()

    def _sum_gradients(self) -> None:
        """Sum gradients of weights replicated on ranks with different tokens."""
        groups = self._construction.groups
        for module, group in (
            (self._layer.router, groups.tokens.group),
            (self._layer.experts, groups.data.group),
        ):
            if group is not None and isinstance(module, torch.nn.Module):
                for parameter in module.parameters():
                    dist.all_reduce(parameter.grad, group=group)

    def _initialise(self) -> None:
        own_experts = self._placement.own_experts
        weights = self._construction.weights(own_experts, device=self._construction.weights_device)
        for weight in weights:
            weight.to(self._construction.device)

    def _single_phase_step(self, part: str) -> Callable[[], None]:
        """A step that runs only `part`, on precomputed input."""
        value, run = self._phase_input(part)

        def step() -> None:
            with torch.no_grad(), self._context():
                run(value)

        return step

    def _phase_input(self, part: str) -> tuple[Any, Callable[[Any], object]]:
        """Input of `part`, and the function that runs it."""
        value: Any = None
        with torch.no_grad(), self._context():
            for name, run in self._layer.stages(self._tokens):
                if name == part:
                    break
                value = run(value)
        return value, run

    def _record_load(self, state: DispatchState) -> None:
        """Record this rank's load relative to an even share, and dropped assignments."""
        section, kept_mask = self._construction.section, state.routing.kept_mask
        self._rows = int(state.counts.sum())
        self._facts = {"expert_load": self._rows / (section.tokens * section.top_k)}
        if kept_mask is not None:
            self._facts["dropped_fraction"] = 1.0 - float(kept_mask.float().mean())
            self._facts["expert_capacity"] = float(capacity(section, section.tokens))

    def _compare(self, *, with_gradients: bool) -> dict[str, Any]:
        """Relative error norms of the layer's last call, by tensor, without communication.

        Raises:
            CorrectnessError: one is beyond the tolerance.
        """
        assert self._output is not None
        built, experts = self._construction, self._layer.experts
        expected = _expected(built, self._placement, with_gradients=with_gradients)
        actual = {"output": self._output}
        if with_gradients:
            assert isinstance(experts, Experts)
            (router,) = self._layer.router.parameters()  # type: ignore[attr-defined] # a module
            grad_in, grad_out = experts.gradients()
            actual |= {"dX": grad_of(self._tokens), "dRouter": grad_of(router)}
            actual |= {"dW_in": grad_in, "dW_out": grad_out}
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
            "experts_of_rank": list(self._placement.own_experts),
        }

    def _compare_initialisation(self) -> Check:
        own_experts = self._placement.own_experts
        device = str(self._construction.device)
        if device == "cpu":
            return Check()
        pairs = zip(
            self._construction.weights(own_experts, device="cpu"),
            self._construction.weights(own_experts, device=device),
            strict=True,
        )
        if not all(on_cpu.equal(on_device.cpu()) for on_cpu, on_device in pairs):
            raise CorrectnessError(
                f"seed {self._construction.seed} gives different weights on {device} than on "
                "the CPU"
            )
        return Check(correctness={"initialised_alike_on": ["cpu", device]})
