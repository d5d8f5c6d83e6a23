"""What a checkpoint says of itself, and the differences of tensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.training.checkpoint import (
    Manifest,
    differences,
    layouts_of,
    refuse_mismatch,
)


def test_layouts_are_found_in_any_nesting():
    """Tensors in dictionaries, lists and tuples are described by their dotted path."""
    found = layouts_of(
        {"a": [torch.zeros(2, 3), {"b": (1, torch.ones(4).bfloat16())}], "c": "text"}
    )
    assert found == {"a.0": ("float32", [2, 3], [3, 1]), "a.1.b.1": ("bfloat16", [4], [1])}


@pytest.mark.parametrize("version", [0, 1, 3, "2", None, True, 2.0])
def test_only_its_own_version_is_read(version, tmp_path):
    """JSON with a version, from which an equal manifest comes; any other version is refused."""
    path = tmp_path / "latest.json"
    manifest = Manifest(file="step-1.pt", sha256="0", step=1, metrics={"a": 0.5}, settings={})
    manifest.write(path)
    assert Manifest.read(path) == manifest
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": version}))
    with pytest.raises(UsageProblem, match="reads only 2"):
        Manifest.read(path)


def test_differences_are_named_once_each():
    """Missing, unexpected, dtype, shape and stride: one line for each tensor that is not alike."""
    saved = {
        "same": torch.zeros(2),
        "gone": torch.zeros(1),
        "cast": torch.zeros(2),
        "reshaped": torch.zeros(2, 3),
        "turned": torch.zeros(2, 3),
    }
    here = {
        "same": torch.ones(2),
        "new": torch.zeros(1),
        "cast": torch.zeros(2).half(),
        "reshaped": torch.zeros(6),
        "turned": torch.zeros(3, 2).t(),
    }
    assert differences(layouts_of(saved), layouts_of(here)) == [
        "cast has dtype float32 in the checkpoint, but float16 here",
        "gone is unexpected: no such tensor here",
        "new is missing from the checkpoint",
        "reshaped has shape [2, 3] in the checkpoint, but [6] here",
        "turned has stride [3, 1] in the checkpoint, but [1, 2] here",
    ]


def test_a_message_names_the_first_differences_and_counts_the_rest():
    """A model of another kind does not fill the screen."""
    with pytest.raises(UsageProblem, match=r"^x\.json does not fit: 0; 1; 2; 3; 4; and 3 more$"):
        refuse_mismatch(Path("x.json"), [str(i) for i in range(8)])
    refuse_mismatch(Path("x.json"), [])
