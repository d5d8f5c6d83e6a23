"""Configurations that are resolved from files with these texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpubench_plugin.config.resolution import resolve
from gpubench_plugin.config.sections import Configuration, ModelSection


def resolved(
    root: Path, *overrides: str, file: str = "{}", overlays: Sequence[str] = (), **given: Any
) -> Configuration[Any]:
    """What the file ``configs/a.yaml`` below `root`, files laid over it and `overrides` make."""
    (root / "configs").mkdir(exist_ok=True)
    (root / "configs" / "a.yaml").write_text(file)
    paths = [root / f"overlay{number}.yaml" for number in range(len(overlays))]
    for path, text in zip(paths, overlays, strict=True):
        path.write_text(text)
    usual: dict[str, Any] = {"name": "a", "preset": "tiny", "fixed_values": {}}
    return resolve(
        **{**usual, **given},
        overlays=paths,
        overrides=overrides,
        rootdir=root,
        model_section=lambda _: ModelSection,
    )
