"""The full presets, without a device that could run them."""

from __future__ import annotations

import runpy
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from gpubench_plugin.core import catalog
from gpubench_plugin.measure.probes.operations import count_flops
from gpubench_plugin.workloads.base import run_fake_step
from tests.support.exhaustive import shown
from tests.support.presets import SOURCES, preset_of, workload_of
from tests.support.shipped import shipped

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "reference" / "workloads.md"
COUNTING = runpy.run_path(str(ROOT / "tools" / "generate" / "workloads.py"))
counted = cache(COUNTING["figures"])

# Parameters in millions as published where the model is: torchvision for the ResNets, Dosovitskiy
# et al. for ViT (86 M, 307 M with their head), the model cards of GPT-2 (124 M, 1.56 B), BERT-large
# with its head (335 M), TinyLlama (1.1 B), Llama 3.1 8B (8.03 B), DDPM on CIFAR-10 (35.7 M), and
# the U-Net of Stable Diffusion 1.5 (860 M). Then GFLOP of the forward pass of a sample, and GiB of
# a training step in fp32.
STATED = {
    "mlp": (150.8, 0.3016, 2.1),
    "cnn": (36.1, 1.9, 5.7),
    "regression": (142.6, 0.2852, 2.9),
    "moe": (605.4, 38.72, 18.1),
    "resnet18": (11.69, 3.628, 5.4),
    "resnet50": (25.56, 8.178, 20.8),
    "vit": (86.57, 35.13, 29.5),
    "vit-l16": (304.3, 123.1, 41.8),
    "gpt2": (124.5, 291.7, 39.7),
    "gpt2-xl": (1557.7, 3507, 90.5),
    "bert": (335.2, 368.1, 31.2),
    "llama": (1100.0, 4993, 71.7),
    "llama-3b": (3015.4, 29670, 149.0),
    "llama-8b": (8030.3, 70270, 166.8),
    "llama-parallel": (1100.0, 4993, 71.7),
    "mixtral": (1154.1, 1552, 53.5),
    "qwen-moe": (1305.8, 1091, 60.0),
    "unet2d": (35.75, 12.44, 11.8),
    "unet-cond": (859.5, 803.3, 26.7),
}
FEW = ("mlp", "moe", "llama")
every_preset = pytest.mark.parametrize("name", shown(*FEW, exhaustively=STATED))

# Parameters in millions and GFLOP of the forward pass of a sample, of what is no training step of
# its own: steps of denoising by the U-Net above, training to a target, processes from their start.
OTHERS = {
    "diffusion": (859.5, 803.3),
    "convergence-diabetes": (769e-6, 1.408e-6),
    "convergence-digits-cnn": (36_010e-6, 660.7e-6),
    "convergence-digits-mlp": (85_002e-6, 169e-6),
    "convergence-text-llama": (101_184e-6, 6.701e-3),
    "cold-start": (25.56, 8.178),
}
WITHOUT_MODEL = {"collectives", "micro"}


@pytest.mark.slow
@every_preset
def test_full_preset_has_the_stated_figures(name: str) -> None:
    """Parameters, operations and memory of each full preset are as stated, within 1%."""
    found = counted(name)
    assert pytest.approx(STATED[name], rel=0.01) == (
        found.parameters / 1e6,
        found.forward_flops / 1e9,
        found.step_gib,
    )


@pytest.mark.slow
@every_preset
def test_full_preset_asks_for_the_memory_it_takes(name: str) -> None:
    """``needs_memory_gib`` covers a training step, and does not keep fitting devices out."""
    found = counted(name)
    taken = found.weights_gib if found.recomputed else found.step_gib
    assert taken <= found.needs_memory_gib <= max(2.5 * taken, 8)


@pytest.mark.slow
@every_preset
def test_document_states_the_full_preset(name: str) -> None:
    """Its row in docs/reference/workloads.md is the one that the table's command prints."""
    document = DOCUMENT.read_text(encoding="utf-8")
    assert COUNTING["row"](name, counted(name)) in document


def test_figures_are_stated_of_what_the_table_has() -> None:
    """The command behind the table counts exactly the presets whose figures stand above."""
    assert set(STATED) == set(COUNTING["PRESETS"])


@pytest.mark.slow
@pytest.mark.parametrize("name", shown("cold-start", exhaustively=OTHERS))
def test_other_full_preset_has_the_stated_figures(name: str) -> None:
    """Parameters and operations are as stated, and the weights alone fit into the memory."""
    found = counted(name)
    assert pytest.approx(OTHERS[name], rel=0.01) == (
        found.parameters / 1e6,
        found.forward_flops / 1e9,
    )
    assert found.parameters * 4 / 2**30 <= found.needs_memory_gib


def test_every_full_preset_is_stated() -> None:
    """A new configuration has to state what its full preset is, if it has a model at all."""
    files = {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    assert files - set(STATED) - set(OTHERS) == WITHOUT_MODEL
    assert shipped("workloads") - SOURCES <= files


LANGUAGE_MODELS = (
    *("gpt2", "gpt2-xl", "bert", "llama", "llama-3b", "llama-8b", "mixtral", "qwen-moe"),
)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_vocabularies_are_aligned_for_tensor_cores(name: str) -> None:
    """The product before the logits has a multiple of 64 columns, so that its rows are aligned."""
    assert COUNTING["configured"](name).model.vocabulary % 64 == 0


# Of full presets: layers, width, tokens of a sample, and the weights that a token meets. N are the
# weights of products: a layer has 4·width² for attention (Llama, whose keys and values have 256
# features, 2·2048·(2048 + 256)) and two matrices, in Llama three, of the feed-forward layer.
PALM = {
    "llama": (22, 2048, 2048, 22 * (2 * 2048 * 2304 + 3 * 2048 * 5632) + 2048 * 32000),
    "gpt2": (12, 768, 1024, 12 * 12 * 768**2 + 768 * 50304),
    "bert": (24, 1024, 512, 24 * 12 * 1024**2 + 1024**2 + 1024 * 30528),
    "vit": (12, 768, 197, 12 * 12 * 768**2),
}


def products(section: Any, feed_forward: int, *, logits: int = 0) -> int:
    """Multiplications of a transformer whose feed-forward layer has so many weights per token."""
    length, width = section.sequence_length, section.width
    shared = getattr(section, "key_value_heads", section.heads) / section.heads
    attention = 2 * width**2 * (1 + shared) + 2 * length * width
    return length * (
        section.layers * (attention + feed_forward) + logits + width * section.vocabulary
    )


def angles(section: Any) -> int:
    """Multiplications of positions by frequencies: up to transformers 5.18 those of matrices."""
    if Version(version("transformers")) >= Version("5.19"):
        return 0
    return int(section.sequence_length * section.width / section.heads / 2)


# Multiplications of one forward pass of a sample of the tiny preset, by its section: of a token in
# a layer those of attention (whose keys and values are key_value_heads / heads as wide), of the
# feed-forward layer or the router and the token's experts, and of all scores with their values;
# then those of the logits, in BERT after one layer more. Of the others as published, in the full
# preset: torchvision's ResNet-18 (1.814 G), and Fang et al. 2023, Structural Pruning for Diffusion
# Models, https://arxiv.org/abs/2305.10924, table 1, of the U-Net of DDPM (6.1 G).
FAMILIES = {
    "gpt2": lambda s: products(s, 2 * s.width * s.intermediate_size),
    "bert": lambda s: products(s, 2 * s.width * s.intermediate_size, logits=s.width**2),
    "llama": lambda s: products(s, 3 * s.width * s.intermediate_size),
    **dict.fromkeys(
        ("mixtral", "qwen-moe"),
        lambda s: products(
            s, s.width * (s.experts + 3 * s.experts_per_token * s.intermediate_size)
        ),
    ),
    "resnet18": 1.814e9,
    "unet2d": 6.1e9,
}
ROTARY = ("llama", "mixtral", "qwen-moe")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_counted_operations_are_those_of_the_formula(name: str) -> None:
    """A forward pass of each family of networks has two FLOPs per multiplication."""
    known = FAMILIES[name]
    workload = workload_of(preset_of(name, "tiny" if callable(known) else "full"))
    expected = known(workload.section) if callable(known) else known
    expected += angles(workload.section) if name in ROTARY else 0
    counted = count_flops(lambda: run_fake_step(workload, samples=1, backward=False)).per_call
    assert counted == pytest.approx(2 * expected, rel=1e-6 if callable(known) else 0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", shown("llama", exhaustively=PALM))
def test_a_training_step_has_the_flops_of_palm(name: str) -> None:
    """6·N + 12·layers·width·tokens for each token, as PaLM and torchtitan have it.

    So a step is three forward passes. Of a ViT the patches' products and the classifier come on
    top, 0.7%. Sources: https://arxiv.org/abs/2204.02311, appendix B, and ``get_nparams_and_flops``
    of https://github.com/pytorch/torchtitan.
    """
    layers, width, tokens, weights = PALM[name]
    expected = tokens * (6 * weights + 12 * layers * width * tokens)
    configuration = COUNTING["configured"](name)
    workload = catalog.load("workloads", name)(configuration.model)
    forward, step = (
        count_flops(lambda b=backward: run_fake_step(workload, samples=1, backward=b)).per_call
        for backward in (False, True)
    )
    assert expected == pytest.approx(step, rel=0.01 if name == "vit" else 1e-4)
    assert 3 * forward == pytest.approx(step, rel=0.005 if name == "vit" else 1e-4)
