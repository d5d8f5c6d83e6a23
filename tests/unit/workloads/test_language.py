"""The language models: their data, their loss, their attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode

from gpubench_plugin.config.resolution import resolve
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.workloads.bert import NO_TARGET

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
SMALL = (
    "model.layers=1",
    "model.width=32",
    "model.heads=4",
    "model.intermediate_size=64",
    "model.vocabulary=100",
    "model.sequence_length=40",
)
causal = pytest.mark.parametrize("name", ["gpt2", "llama"])
EVERY = ("gpt2", "llama", "bert")
every = pytest.mark.parametrize("name", EVERY)


@pytest.fixture
def small(make_workload):
    def make(name, *overrides):
        return make_workload(name, "tiny", *SMALL, *overrides)

    return make


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@causal
def test_targets_are_the_next_tokens(name, small):
    """The target of a token is the one that follows; of the last one it is beyond the row."""
    workload = small(name)
    batch = workload.synthetic_batch(3, device=CPU, generator=seeded())
    assert (3, 40) == tuple(batch.inputs.shape) == tuple(batch.targets.shape)
    assert batch.inputs[:, 1:].equal(batch.targets[:, :-1])
    assert batch.targets.equal((batch.inputs + 1) % 100)


@causal
def test_text_becomes_tokens_and_their_successors(name, small):
    """A row of L + 1 real tokens is L inputs and L targets."""
    tokens = torch.randint(100, (2, 41), generator=seeded())
    batch = small(name).from_text(tokens)
    assert batch.inputs.equal(tokens[:, :40])
    assert batch.targets.equal(tokens[:, 1:])


@causal
def test_text_that_does_not_fit_is_refused(name, small):
    """Too many different tokens and rows of another length are refused, both sizes named."""
    workload = small(name)
    with pytest.raises(UsageProblem, match=r"ids up to 100, .* model\.vocabulary=100$"):
        workload.from_text(torch.full((1, 41), 100))
    with pytest.raises(UsageProblem, match=r"rows of 30 tokens .* model\.sequence_length=40"):
        workload.from_text(torch.zeros(1, 31, dtype=torch.long))


def test_bert_fills_in_15_percent_of_each_row(small):
    """Six of forty tokens of each row are masked; what they were is their target, no other's."""
    workload = small("bert")
    inputs, targets, _ = workload.synthetic_batch(5, device=CPU, generator=seeded())
    masked = inputs == 99
    assert masked.sum(1).tolist() == [6] * 5
    assert masked.equal(targets != NO_TARGET)
    assert set(targets[masked].tolist()) <= set(range(99))


@every
def test_loss_is_the_mean_surprise_of_the_targets(name, small):
    """The loss is the mean of −log p over the targets there are."""
    workload = small(name)
    module = workload.build()
    batch = workload.synthetic_batch(2, device=CPU, generator=seeded())
    log_p = workload.forward(module, batch).double().log_softmax(-1)
    surprises = [
        -log_p[row, place, token].item()
        for row, tokens in enumerate(batch.targets.tolist())
        for place, token in enumerate(tokens)
        if token != NO_TARGET
    ]
    assert sum(surprises) / len(surprises) == pytest.approx(
        workload.loss(module, batch).item(), rel=1e-5
    )


@every
def test_logits_in_half_give_a_loss_in_fp32(name, small):
    """The loss is computed in fp32 whatever the model computes in."""
    workload = small(name)
    module = workload.build().to(torch.bfloat16)
    assert workload.loss(module, workload.synthetic_batch(2, device=CPU)).dtype == torch.float32


@every
def test_attention_without_a_mask_sees_what_the_library_lets_it_see(name, small):
    """The logits are those of transformers' own eager attention with its own mask."""
    workload = small(name)
    module = workload.build().eval()
    batch = workload.synthetic_batch(2, device=CPU, generator=seeded())
    found = workload.forward(module, batch)
    module.set_attn_implementation("eager")
    torch.testing.assert_close(found, workload.forward(module, batch), atol=1e-5, rtol=1e-5)


@every
def test_nothing_is_dropped_in_training(name, small):
    """Two forward passes in training mode agree: there is no dropout."""
    workload = small(name)
    module = workload.build().train()
    batch = workload.synthetic_batch(2, device=CPU)
    assert workload.forward(module, batch).equal(workload.forward(module, batch))


@pytest.mark.parametrize(
    ("name", "overlay", "parameters"),
    [
        ("gpt2", "gpt2-xl", 1_557_611_200 + (50304 - 50257) * 1600),
        ("llama", "llama-3b", 3_015_355_392),
        ("llama", "llama-8b", 8_030_261_248),
    ],
)
def test_larger_models_have_the_known_parameters(name, overlay, parameters):
    """A configuration to lay over has as many parameters as the known model, and padded tokens."""
    workload = catalog.load("workloads", name)
    configuration = resolve(
        name=name,
        preset="full",
        overlays=[ROOT / "configs" / f"{overlay}.yaml"],
        overrides=[],
        fixed_values={},
        rootdir=ROOT,
        model_section=lambda _: workload.Section,
    )
    with FakeTensorMode():
        module = workload(configuration.model).build()
    assert parameters == sum(p.numel() for p in module.parameters())
