"""Taking in prompts and generating token by token."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, UsageProblem
from gpubench_plugin.core.records import Work
from gpubench_plugin.measure.probes.operations import count_flops
from gpubench_plugin.training.generation import TOLERANCE, Decode, Prefill
from gpubench_plugin.training.model import build_model
from gpubench_plugin.workloads._language import CachedModel
from tests.support.operations import Operations
from tests.support.presets import CPU, preset_of, workload_of

NAN = float("nan")
SMALL = (
    "model.layers=2",
    "model.width=32",
    "model.heads=4",
    "model.intermediate_size=64",
    "model.vocabulary=100",
    "model.sequence_length=24",
)
both = pytest.mark.parametrize("kind", [Prefill, Decode])


@pytest.fixture
def make():
    """Builds what generates with a small model; keywords are those of the class."""

    def made(
        kind, *, name="llama", preset="tiny", overrides=SMALL, precision="fp32", **arguments: Any
    ):
        configuration = preset_of(name, preset, *overrides, precision__name=precision)
        workload = workload_of(configuration)
        chosen = catalog.load("precision", precision)()
        return kind(
            workload=workload,
            module=build_model(workload, seed=0, device=CPU, precision=chosen),
            precision=chosen,
            device=CPU,
            **{"sequences": 3, "prompt_tokens": None, "new_tokens": None} | arguments,
        )

    return made


def seen_tokens(generation):
    return {int(seen) for seen in generation._model._lengths}


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_tokens_are_those_of_repeated_forward_passes(name, make):
    """Greedy tokens from the cache are the ones that forward passes over the whole text choose."""
    decode = make(Decode, name=name, prompt_tokens=10, new_tokens=14)
    text = decode._prompt
    decode.prepare(print)  # which leaves it eight tokens after the first
    found = [int(token) for token in decode._token]
    for _ in range(9):
        logits = decode._model.uncached(text, last_positions=1)
        text = torch.cat([text, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert text[:, -1].tolist() == found


@both
@pytest.mark.parametrize("precision", ["fp32", "bf16", "amp", "bf16-true", "fp16-true"])
def test_the_record_says_how_far_the_cache_is_off(kind, precision, make):
    """In every precision the error is recorded, and within what the record calls tolerated."""
    check = make(kind, precision=precision).prepare(print)
    error, tolerance = check.correctness["cache_error"], check.correctness["cache_tolerance"]
    tokens = 3 * (2 if kind is Prefill else 9)
    assert 0 <= error <= tolerance == TOLERANCE[catalog.load("precision", precision).compute_dtype]
    assert (tokens, True) == (
        check.correctness["tokens_compared"],
        0 <= check.correctness["tokens_equal"] <= tokens,
    )
    assert {"first_step_s"} == set(check.facts)


@both
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16-true"])
def test_a_cache_one_token_off_is_an_error(kind, precision, make, monkeypatch):
    """Reading on at the wrong place of the cache fails the check, in half precision, too."""
    first = CachedModel.prefill

    def misplaced(self, tokens):
        logits = first(self, tokens)
        self.reset_position(tokens.shape[1] - 1)
        return logits

    monkeypatch.setattr(CachedModel, "prefill", misplaced)
    with pytest.raises(CorrectnessError, match="logits of"):
        make(kind, precision=precision).prepare(print)


def test_nan_is_no_small_error(make):
    """Weights that make NaN fail the check, though no difference from NaN is above a tolerance."""
    decode = make(Decode)
    with torch.no_grad():
        decode._model._module.lm_head.weight[0, 0] = NAN
    with pytest.raises(CorrectnessError, match=r"differ .* by nan"):
        decode.prepare(print)


@both
def test_logits_that_become_nan_while_timed_are_an_error(kind, make):
    """The last timed logits are looked at."""
    generation = make(kind)
    generation.prepare(print)
    generation.begin()
    with torch.no_grad():
        generation._model._module.lm_head.weight[0, 0] = NAN
    generation.step()
    with pytest.raises(CorrectnessError, match="not finite"):
        generation.finish()


def test_a_full_cache_goes_on_after_the_prompt(make):
    """After new_tokens calls the next one writes behind the prompt again, and on from there."""
    decode = make(Decode, prompt_tokens=10, new_tokens=3)
    decode.prepare(print)
    assert {13} == seen_tokens(decode)
    positions = []
    for _ in range(5):
        decode.step()
        positions.append(seen_tokens(decode))
    assert [{11}, {12}, {13}, {11}, {12}] == positions


def test_every_prompt_starts_from_an_empty_cache(make):
    """Taking in the prompt again gives the same logits and leaves its tokens in the cache."""
    prefill = make(Prefill, prompt_tokens=10)
    prefill.step()
    logits = prefill._logits
    prefill.step()
    assert ({10}, True) == (seen_tokens(prefill), logits.equal(prefill._logits))


@both
def test_a_step_reads_nothing_from_the_device(kind, make):
    """The choice of a token, the mask and the cache's position stay on the device."""
    generation = make(kind, new_tokens=2)
    generation.prepare(print)
    with Operations() as operations:
        for _ in range(3):
            generation.step()
    assert {"_local_scalar_dense", "is_nonzero", "nonzero"} & operations.counts.keys() == set()


@both
def test_what_runs_per_call_is_compiled_with_the_choice_of_a_token(kind, make):
    """The compiler gets one function from tokens to logits and tokens, and its code is run."""
    calls = []

    def compile(function):
        def compiled(tokens):
            calls.append(tuple(tokens.shape))
            return function(tokens)

        return compiled

    generation = make(kind, prompt_tokens=10, compile=compile)
    generation.step()
    assert [(3, 10 if kind is Prefill else 1)] == calls


@pytest.mark.parametrize(
    ("device", "compile", "told"), [("cuda", True, 1), ("cuda", False, 0), ("cpu", True, 0)]
)
def test_captured_graphs_are_told_of_every_call(device, compile, told, make, monkeypatch):
    """Before a compiled call on CUDA the outputs of the last one are given up, elsewhere not."""
    calls = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: calls.append(1))
    generation = make(Prefill, compile=(lambda step: step) if compile else None)
    monkeypatch.setattr(generation, "_device", torch.device(device))
    monkeypatch.setattr(generation._precision, "forward_context", lambda _: nullcontext())
    generation.step()
    assert len(calls) == told


@pytest.mark.parametrize(("prompt", "new"), [(20, 5), (24, None)])
def test_more_tokens_than_positions_are_refused(prompt, new, make):
    """The message names both lengths and the positions, of a project's own workload, too."""
    said = rf"prompt_tokens={prompt} and inference\.new_tokens={new or 1} together .*_length=24"
    with pytest.raises(UsageProblem, match=said):
        make(Decode, prompt_tokens=prompt, new_tokens=new)


def test_a_prompt_may_take_all_positions(make):
    """Where no token is to follow, the logits of the prompt alone are compared."""
    check = make(Prefill, prompt_tokens=24).prepare(print)
    assert check.correctness["tokens_compared"] == 3


@pytest.mark.parametrize(
    ("kind", "work", "fact"),
    [
        (Prefill, Work(samples=3, tokens=30), "first_tokens"),
        (Decode, Work(tokens=3), "output_tokens"),
    ],
)
def test_work_and_facts_of_a_call(kind, work, fact, make):
    """A prompt takes in the tokens of all rows; each call gives each row one token."""
    generation = make(kind, prompt_tokens=10)
    assert (generation.work(), generation.finish()) == (work, {fact: 1.0})


@pytest.mark.parametrize(("kind", "tokens", "attended"), [(Prefill, 16, 16), (Decode, 1, 24)])
def test_flops_are_those_of_the_layers_and_of_attention_over_the_cache(
    kind, tokens, attended, make
):
    """One call costs twice each weight per token, four per attended feature, and a row of logits.

    A prompt attends to itself, without a deduction for the causal mask; a token to all of the
    cache. Shapes: hidden 32, its half for keys and for values, 64 inside the feed-forward layers.
    """
    layers, width, inside, vocabulary = 2, 32, 64, 100
    weights = 2 * width**2 + 2 * width * (width // 2) + 3 * width * inside
    per_row = tokens * layers * (2 * weights + 4 * width * attended) + 2 * width * vocabulary
    counted = count_flops(make(kind, prompt_tokens=16).flops_step)
    assert 3 * per_row == pytest.approx(counted.per_call, rel=0.01)
