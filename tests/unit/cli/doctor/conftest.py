"""A machine on paper for the checks of ``gpubench doctor``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli.doctor.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

TORCH: dict[str, Any] = {
    "version": "2.11.0+cu130",
    "cuda": "13.0",
    "nccl": "2.28.9",
    "architectures": ["sm_80", "sm_90", "compute_90"],
    "devices": 1,
    "problem": "",
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    """Write a file below the machine's root."""

    def written(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return written


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """A machine of two cores below a root, with other facts and facts of torch."""
    usage = SimpleNamespace(total=2**40, free=2**39, used=0)
    for name, answer in (
        ("shutil.disk_usage", usage),
        ("psutil.swap_memory", usage),
        ("psutil.cpu_times_percent", [(0.0, 0.0)] * 2),
        ("psutil.process_iter", []),
    ):
        monkeypatch.setattr(name, lambda *_, answer=answer, **__: answer)

    def of(torch: dict[str, Any] | None = None, **facts: Any) -> Machine:
        script = f"print({json.dumps({**TORCH, **(torch or {})})!r})"
        settings: dict[str, Any] = {
            "root": tmp_path,
            "results": tmp_path / "results",
            "cores": frozenset({0, 1}),
            "environ": {},
            "torch_command": (sys.executable, "-c", script),
        }
        return Machine(**{**settings, **facts})

    return of
