"""Sizes that contradict each other, in the configuration of every workload."""

from __future__ import annotations

import pytest

from gpubench_plugin.core.errors import UsageProblem

HEADS = "width 32 is not a multiple of heads 5"
ROTARY = "width 36 / heads 4 is 9: rotary .* even head size"
NARROW = "model.width=32 model.heads=4"
REFUSED = [
    *((name, f"{NARROW} model.heads=5", HEADS) for name in ("gpt2", "llama", "bert")),
    (
        "llama",
        f"{NARROW} model.key_value_heads=3",
        "heads 4 is not a multiple of key_value_heads 3",
    ),
    *((name, "model.width=36 model.heads=4", ROTARY) for name in ("llama", "qwen-moe")),
    ("mixtral", "model.experts_per_token=9", "experts_per_token 9 exceeds experts 4"),
    ("mixtral", "model.experts_implementation=groped", "did you mean 'grouped'"),
    ("vit", "model.patch_size=5", "image_size 32 is not a multiple of patch_size 5"),
    ("vit", "model.heads=5", "width 64 is not a multiple of heads 5"),
    ("unet-cond", "model.attention=[true]", "attention has 1 values but hidden_sizes has 2"),
    ("unet-cond", "model.hidden_sizes=[32,40]", "40.*multiple of 32"),
    ("unet-cond", "model.sample_size=15", "sample_size 15 cannot be halved 1 times"),
    ("unet-cond", "model.heads=5", "32 is not a multiple of heads 5"),
    ("resnet50", "model.hidden_sizes=[3,8,8,8]", "hidden_sizes.*greater than or equal to 4"),
    ("cnn", "model.image_size=3", "model: image_size=3 is too small; allowed: at least 4"),
    ("moe", "moe.top_k=9", "moe: top_k=9 exceeds experts=8; allowed: top_k from 1 to 8"),
    ("moe", "model.top_k=9", "model: top_k=9 exceeds experts=4; allowed: top_k from 1"),
    ("moe", "moe.tensor_parallel=3", "hidden 128 is not a multiple of tensor_parallel 3"),
    ("diffusion", "diffusion.scheduler=eulr", "'eulr' .did you mean 'euler'.*allowed: "),
    ("diffusion", "diffusion.scheduler=DDIMSchedular", "did you mean 'DDIMScheduler'"),
    ("diffusion", "diffusion.scheduler=EulerScheduler", "did you mean 'EulerD"),
]


@pytest.mark.parametrize(("name", "overrides", "message"), REFUSED)
def test_impossible_sizes_are_refused(name, overrides, message, make_workload):
    """They are bad input, and the message names both."""
    with pytest.raises(UsageProblem, match=message):
        make_workload(name, "tiny", *overrides.split())
