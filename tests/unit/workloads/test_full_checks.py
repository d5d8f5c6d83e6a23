"""The full presets are checked as the tiny ones are: a loss that must fall, and a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.config.sections import Configuration
from tests.support.presets import ROOT, preset_of

OVERLAYS = {"gpt2-xl": "gpt2", "llama-3b": "llama", "llama-8b": "llama", "vit-l16": "vit"}
TRAINED = (
    *("bert", "cnn", "gpt2", "llama", "llama-parallel", "mixtral", "mlp", "moe", "qwen-moe"),
    *("regression", "resnet18", "resnet50", "unet-cond", "unet2d", "vit"),
)


def full(name: str, *overrides: str) -> Configuration[Any]:
    """The full preset of that name."""
    overlays = [name] if name in OVERLAYS else []
    return preset_of(OVERLAYS.get(name, name), "full", *overrides, overlays=overlays)


@pytest.mark.parametrize("name", [*TRAINED, *OVERLAYS])
def test_full_preset_asks_for_a_falling_loss(name: str) -> None:
    """An update that does nothing leaves the loss where it is: the limit is below 1."""
    training = full(name).training
    assert training.loss_drop is not None
    assert training.loss_drop < 1


def test_every_trained_configuration_is_looked_at() -> None:
    """A file with a loss_drop for tiny has one for full as well."""
    tuned = {path.stem for path in (ROOT / "configs").glob("*.yaml") if _is_tuned(path)}
    assert tuned == {*TRAINED, *OVERLAYS}


def _is_tuned(path: Path) -> bool:
    return "loss_drop:" in path.read_text(encoding="utf-8")
