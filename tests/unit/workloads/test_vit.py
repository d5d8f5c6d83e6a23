"""The vision transformer."""

from __future__ import annotations

import sys

import pytest
import torch

from gpubench_plugin.core.errors import MissingPackage


def test_patches_become_tokens(make_workload):
    """The tiny preset's 32×32 images are 64 patches of 4×4 and one token for the class."""
    module = make_workload("vit", "tiny").build()
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    (patches,) = [s for name, s in shapes.items() if name.endswith("projection.weight")]
    (positions,) = [s for name, s in shapes.items() if name.endswith("position_embeddings")]
    assert (patches, positions) == ((64, 3, 4, 4), (1, 65, 64))


def test_weights_without_data_are_of_the_same_model(make_workload):
    """What is built for counting has the parameters of the real model."""
    workload = make_workload("vit", "tiny")
    real, counted = (
        [(name, p.shape) for name, p in made.build().named_parameters()]
        for made in (workload, workload.for_fake_tensors())
    )
    assert counted == real


@pytest.mark.parametrize(
    ("name", "library"),
    [
        *((n, "transformers") for n in ("vit", "gpt2", "bert", "llama", "mixtral", "qwen-moe")),
        *((name, "diffusers") for name in ("unet2d", "unet-cond")),
    ],
)
def test_missing_library_is_unsupported_with_the_remedy(name, library, make_workload, monkeypatch):
    """Without its library the workload is unsupported, and the reason says what to install."""
    monkeypatch.setitem(sys.modules, library, None)
    message = rf"{library}.*pip install 'pytest-gpubench\[suite\]'"
    with pytest.raises(MissingPackage, match=message) as caught:
        make_workload(name, "tiny").build()
    assert caught.value.package == library


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["vit", "gpt2", "llama", "bert", "mixtral", "qwen-moe", "unet2d", "unet-cond"]
)
def test_activations_computed_again_change_nothing_else(name, make_workload):
    """With model.activation_checkpointing less is kept, and loss and gradients are the same."""

    def trained(*overrides):
        workload = make_workload(name, "tiny", *overrides)
        torch.manual_seed(0)
        module = workload.build().train()
        generator = torch.Generator().manual_seed(0)
        batch = workload.synthetic_batch(2, device=torch.device("cpu"), generator=generator)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(1) or t, lambda t: t):
            loss = workload.loss(module, batch)
        loss.backward()
        return len(kept), loss.detach(), [p.grad for p in module.parameters()]

    many, loss, gradients = trained()
    few, again, same = trained("model.activation_checkpointing=true")
    assert few < 0.7 * many
    torch.testing.assert_close((again, same), (loss, gradients), rtol=1e-5, atol=1e-6)
