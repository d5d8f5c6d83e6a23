"""Decoding with fewer heads of keys and values than of queries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv

from gpubench_plugin.workloads import _language
from gpubench_plugin.workloads._language import CachedModel, groups_heads, with_folded_groups

CPU = torch.device("cpu")
SMALL = (
    "model.layers=2",
    "model.width=32",
    "model.heads=4",
    "model.key_value_heads=2",
    "model.intermediate_size=64",
    "model.vocabulary=100",
    "model.sequence_length=512",
)
grouped = pytest.mark.parametrize("name", ["llama", "mixtral", "qwen-moe"])


class NewStorage(TorchDispatchMode):
    """The bytes of the largest storage that an operation has allocated."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        old = {t.untyped_storage()._cdata for t in tensors((args, kwargs))}
        new = [t for t in tensors(result) if t.untyped_storage()._cdata not in old]
        self.largest = max([self.largest, *(t.untyped_storage().nbytes() for t in new)])
        return result


def tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


@pytest.fixture
def cached(make_workload):
    """A small model with a cache of 512 tokens for three rows, and one layer's bytes of keys."""

    def make(name, dtype=torch.float32):
        torch.manual_seed(0)
        module = make_workload(name, "tiny", *SMALL).build().to(dtype).eval()
        model = CachedModel(name, module, sequences=3, length=512, dtype=dtype, device=CPU)
        layer = model._cache.layers[0]
        return model, layer.keys.untyped_storage().nbytes()

    return make


def attend_to_repeated(module, query, key, value, mask, **options):
    """Attention of transformers with one head of keys and values per head of the query."""
    key, value = (repeat_kv(t, module.num_key_value_groups) for t in (key, value))
    output = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=options["scaling"]
    )
    return output.transpose(1, 2).contiguous(), None


@grouped
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_has_the_logits_of_repeated_heads(name, dtype, cached):
    """Keys and values repeated by transformers for each query give the same logits."""
    model, _ = cached(name, dtype)
    AttentionInterface.register("gpubench_repeated", attend_to_repeated)
    logits = []
    for attention in (None, "gpubench_repeated"):
        if attention is not None:
            model._module.set_attn_implementation(attention)
        model.reset_position(0)
        with torch.no_grad():
            # All from the cache, so that only the attention of single tokens differs.
            for token in range(5):
                found = model.decode(torch.full((3, 1), 7 * token))
        logits.append(found.float())
    folded, repeated = logits
    error = (folded - repeated).abs().max() / repeated.abs().max()
    assert float(error) < (1e-5 if dtype == torch.float32 else 3e-2)


@pytest.mark.parametrize(
    ("heads", "tokens", "mask_heads"),
    [(2, 1, 1), (8, 5, 1), (8, 1, 8)],
    ids=["as many heads", "a prompt", "a mask per head"],
)
def test_what_is_no_grouped_token_is_the_librarys(heads, tokens, mask_heads):
    """Equal heads, several tokens and masks per head are passed on as they are."""
    query, key = torch.randn(3, heads, tokens, 16), torch.randn(3, 2, 40, 16)
    mask = torch.ones(3, mask_heads, tokens, 40, dtype=torch.bool)
    calls = []

    def library(*arguments, **options):
        calls.append((arguments, options))
        return query, None

    with_folded_groups(library)("module", query, key, key, mask, scaling=0.3)
    assert calls == [(("module", query, key, key, mask), {"scaling": 0.3})]


@pytest.mark.parametrize(
    ("device_type", "dtype", "expected"),
    [
        ("cuda", torch.float32, False),
        ("cuda", torch.bfloat16, True),
        ("cuda", torch.float16, True),
        ("cpu", torch.float32, True),
        ("mps", torch.float32, True),
    ],
)
def test_no_fused_kernel_of_cuda_groups_heads_in_fp32(device_type, dtype, expected):
    """Flash attention takes 16 bits only; torch's memory-efficient kernel takes equal heads."""
    assert expected == groups_heads(device_type, dtype)


def test_autocast_decides_what_a_kernel_takes(monkeypatch):
    """Queries that rotation has made fp32 are cast before they reach the kernel."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device_type: device_type == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.bfloat16)
    assert groups_heads("cuda", torch.float32)


def test_without_such_a_kernel_heads_are_repeated(monkeypatch):
    """A prompt in a longer cache attends causally to its own tokens, head by head."""
    monkeypatch.setattr(_language, "groups_heads", lambda *_: False)
    query, key, value = (
        torch.randn(3, heads, tokens, 16, generator=torch.Generator().manual_seed(tokens))
        for heads, tokens in ((8, 12), (2, 40), (2, 41))
    )
    expected = scaled_dot_product_attention(
        query,
        *(t[:, :, :12].repeat_interleave(4, dim=1) for t in (key, value)),
        is_causal=True,
        scale=0.3,
    )
    actual, weights = with_folded_groups(lambda *_: pytest.fail("left to the library"))(
        SimpleNamespace(num_key_value_groups=4), query, key, value, None, scaling=0.3, dropout=0.0
    )
    assert weights is None
    torch.testing.assert_close(actual, expected.transpose(1, 2), rtol=1e-5, atol=1e-6)


@grouped
def test_a_token_copies_no_cache(name, cached):
    """No operation of an eager step allocates as much as one layer's keys."""
    model, bytes_of_keys = cached(name)
    with torch.no_grad(), NewStorage() as storage:
        model.decode(torch.ones(3, 1, dtype=torch.long))
    assert 0 < storage.largest < bytes_of_keys


@pytest.mark.slow
def test_a_compiled_token_copies_no_cache(cached):
    """One graph is captured, and none of its operations allocates as much as one layer's keys."""
    model, bytes_of_keys = cached("llama")
    storages = []

    def backend(graph, inputs):
        def run(*arguments):
            with NewStorage() as storage:
                result = graph(*arguments)
            storages.append(storage.largest)
            return result

        return run

    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(model.decode, backend=backend, fullgraph=True)(
            torch.ones(3, 1, dtype=torch.long)
        )
    assert len(storages) == 1
    assert 0 < storages[0] < bytes_of_keys
