"""Text generation as two benchmarks: prefill, and decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from gpubench_plugin.core.errors import CorrectnessError, UsageProblem
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.devices import timed_s
from gpubench_plugin.measure.protocols import Log
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.training.inference import CASTS_WEIGHTS
from gpubench_plugin.workloads._language import CachedModel, CausalLanguageModel
from gpubench_plugin.workloads.base import DTYPES

Greedy = Callable[["Tensor"], tuple["Tensor", "Tensor"]]
Compile = Callable[[Greedy], Greedy]

TOLERANCE: Final = {"fp64": 1e-4, "fp32": 1e-4, "tf32": 1e-2, "fp16": 2e-2, "bf16": 5e-2}
"""Largest difference of logits with and without a cache, relative to the largest logit: above
rounding in many layers, far below the error of a wrong cache position."""

CHECKED_TOKENS: Final = 8
"""Tokens generated to compare logits: enough for the cache to be read at several positions, few
enough for an uncached pass."""


class Generation:
    """Greedy decoding of a model with a static cache; subclasses define one call.

    The `sequences` prompts of `prompt_tokens` tokens are drawn with `seed`; the cache has room for
    `new_tokens` more per row. `compile` compiles the call.

    Raises:
        UsageProblem: the model has fewer positions than tokens.
    """

    min_new_tokens: ClassVar[int]
    method: ClassVar[str]
    """The method of :class:`.CachedModel` that a call runs."""

    fact: ClassVar[str]
    """Name of the tokens generated per row and call."""

    def __init__(
        self,
        *,
        module: nn.Module,
        workload: CausalLanguageModel[Any],
        sequences: int,
        prompt_tokens: int | None,
        new_tokens: int | None,
        precision: Precision,
        device: torch.device,
        seed: int = 0,
        compile: Compile | None = None,
    ):
        positions = workload.section.sequence_length
        if reason := self.refusal(prompt_tokens, new_tokens, positions=positions):
            raise UsageProblem(reason)
        self.sequences = sequences
        self.prompt_tokens, self.new_tokens = _lengths(prompt_tokens, new_tokens, positions)
        self._workload = workload
        self._precision = precision
        self._device = device
        dtype = DTYPES.get(precision.compute_dtype, torch.float32)
        self._model = self._cached(module, dtype, device)
        generator = torch.Generator(device).manual_seed(seed)
        batch = workload.synthetic_batch(sequences, device=device, generator=generator)
        self._prompt = batch.inputs[:, : self.prompt_tokens].contiguous()
        self._compile = compile
        greedy_step = _greedy(getattr(self._model, self.method))
        self._greedy_step = greedy_step if compile is None else compile(greedy_step)
        self._logits: Tensor | None = None
        self.calls = 0

    @classmethod
    def refusal(cls, prompt_tokens: int | None, new_tokens: int | None, *, positions: int) -> str:
        """Reason why the tokens do not fit into the model's `positions`; empty if they do."""
        prompt, generated = _lengths(prompt_tokens, new_tokens, positions)
        generated = max(generated, cls.min_new_tokens)
        if prompt + generated <= positions:
            return ""
        return (
            f"inference.prompt_tokens={prompt} and inference.new_tokens={generated} together "
            f"exceed model.sequence_length={positions}; allowed: {positions} together at most, or "
            f"model.sequence_length of at least {prompt + generated}"
        )

    def _cached(self, module: nn.Module, dtype: torch.dtype, device: torch.device) -> CachedModel:
        return CachedModel(
            self._workload.section.name,
            module.eval(),
            sequences=self.sequences,
            length=self.prompt_tokens + self.new_tokens,
            dtype=dtype,
            device=device,
        )

    def _call(self, tokens: Tensor) -> Tensor:
        """One call of the model; the next token of each row."""
        # Compiled code guards on inference tensors, so it gets ordinary ones.
        without_gradients = torch.inference_mode if self._compile is None else torch.no_grad
        with without_gradients(), self._precision.forward_context(self._device):
            if self._compile is not None and self._device.type == "cuda":
                torch.compiler.cudagraph_mark_step_begin()  # outputs may be overwritten
            self._logits = None  # captured graphs reuse their memory
            self._logits, token = self._greedy_step(tokens)
        return token

    def begin(self) -> None:
        """No-op: nothing is counted."""

    def finish(self) -> Mapping[str, float]:
        """Tokens generated per row and call.

        Raises:
            CorrectnessError: the last logits are not finite; a NaN in the cache stays in them.
        """
        if self._logits is not None and not bool(torch.isfinite(self._logits).all()):
            raise CorrectnessError("the logits of the last timed call are not finite")
        return {self.fact: 1.0}

    def flops_step(self) -> None:
        """Run one call on fake tensors, for FLOP counting."""
        with FakeTensorMode(), torch.no_grad():
            module = self._workload.for_fake_tensors().build()
            model = self._cached(module, torch.float32, torch.device("cpu"))
            tokens = self.prompt_tokens if self.method == "prefill" else 1
            getattr(model, self.method)(torch.zeros(self.sequences, tokens, dtype=torch.long))

    def _compare(self, logits: list[Tensor], tokens: list[Tensor]) -> Mapping[str, object]:
        """Compare `logits` that led to `tokens` with a forward pass without a cache.

        Raises:
            CorrectnessError: they differ by more than the precision explains.
        """
        sequence = torch.cat([self._prompt, *tokens[:-1]], dim=1)
        with torch.inference_mode(), self._precision.forward_context(self._device):
            expected = self._model.uncached(sequence, last_positions=len(logits)).float()
        cached_logits = torch.stack(logits, dim=1).float()
        error = float((cached_logits - expected).abs().max() / expected.abs().max())
        tolerance = TOLERANCE.get(self._precision.compute_dtype, max(TOLERANCE.values()))
        if not error <= tolerance:  # also where it is NaN
            raise CorrectnessError(
                f"logits of {len(logits)} tokens with a static cache differ from those of a "
                f"plain forward pass by {error:.3g} of the largest; allowed in "
                f"{self._precision.name}: {tolerance:g}"
            )
        is_equal = torch.cat(tokens, dim=1) == expected.argmax(dim=-1)
        casts = {CASTS_WEIGHTS: True} if self._precision.casts_weights else {}
        return {
            **casts,
            "cache_error": error,
            "cache_tolerance": tolerance,
            "tokens_compared": is_equal.numel(),
            "tokens_equal": int(is_equal.sum()),
        }


class Prefill(Generation):
    """Prefill: each call of :meth:`step` reads the prompt and selects the first token."""

    min_new_tokens = 0
    method = "prefill"
    fact = "first_tokens"
    _token: Tensor | None = None

    def step(self) -> None:
        """Prefill all prompts from an empty cache (hot path)."""
        self._model.reset_position(0)
        self._token = None  # captured graphs reuse its memory
        self._token = self._call(self._prompt)
        self.calls += 1

    def prepare(self, log: Log) -> Check:
        """Prefill once, timed; compare the logits, also of one token decoded from the cache.

        Raises:
            CorrectnessError: they differ from those of a forward pass without a cache.
        """
        first_step_s = timed_s(self.step, self._device)
        assert self._logits is not None
        assert self._token is not None
        logits, tokens = [self._logits.clone()], [self._token.clone()]
        if self.new_tokens:
            with torch.inference_mode(), self._precision.forward_context(self._device):
                decoded_logits, token = _greedy(self._model.decode)(tokens[0])
            logits.append(decoded_logits)
            tokens.append(token)
        comparison = self._compare(logits, tokens)
        return Check(correctness=comparison, facts={"first_step_s": first_step_s})

    def work(self) -> Work:
        """Prompts and their tokens."""
        return Work(samples=self.sequences, tokens=self.sequences * self.prompt_tokens)


class Decode(Generation):
    """Decoding: each call of :meth:`step` generates one token per row.

    When the cache is full, decoding continues from the end of the prompt. The reset is part of the
    step: two operations in one of `new_tokens` calls.
    """

    min_new_tokens = 1
    method = "decode"
    fact = "output_tokens"

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self._token = torch.zeros(self.sequences, 1, dtype=torch.long, device=self._device)
        self._remaining = 0

    def step(self) -> None:
        """Generate one token per row (hot path)."""
        if not self._remaining:
            self._model.reset_position(self.prompt_tokens)
            self._remaining = self.new_tokens
        self._token.copy_(self._call(self._token))
        self._remaining -= 1
        self.calls += 1

    def prepare(self, log: Log) -> Check:
        """Prefill, decode with the first call timed, and compare the logits.

        Raises:
            CorrectnessError: they differ from those of a forward pass without a cache.
        """
        self._model.reset_position(0)
        with torch.inference_mode(), self._precision.forward_context(self._device):
            first_logits, token = _greedy(self._model.prefill)(self._prompt)
        self._token.copy_(token)
        logits, tokens = [first_logits], [token]
        self._remaining = self.new_tokens
        durations_s = []
        for _ in range(min(CHECKED_TOKENS, self.new_tokens)):
            durations_s.append(timed_s(self.step, self._device))
            assert self._logits is not None
            logits.append(self._logits.clone())
            tokens.append(self._token.clone())
        comparison = self._compare(logits, tokens)
        return Check(correctness=comparison, facts={"first_step_s": durations_s[0]})

    def work(self) -> Work:
        """One token per row."""
        return Work(tokens=self.sequences)


def _lengths(prompt_tokens: int | None, new_tokens: int | None, positions: int) -> tuple[int, int]:
    """Tokens of prompt and answer; by default half of the `positions`, and the rest."""
    prompt = prompt_tokens or max(1, positions // 2)
    return prompt, positions - prompt if new_tokens is None else new_tokens


def _greedy(logits_of: Callable[[Tensor], Tensor]) -> Greedy:
    """Greedy decoding: logits, and the most likely token per row."""

    def greedy_step(tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits_of(tokens)
        return logits, logits.argmax(dim=-1, keepdim=True)

    return greedy_step
