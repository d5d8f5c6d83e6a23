"""``gpubench doctor``: what this machine offers, and what is missing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from gpubench_plugin import catalog
from gpubench_plugin.cli.commands._places import say
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.environment import collect, devices

_PACKAGES = ("pytest-gpubench", "torch", "pytest", "pytest-benchmark", "transformers", "diffusers")


class Doctor(Command):
    """Versions, the device that ``auto`` means, and each precision with a reason if it is not."""

    help: ClassVar[str] = "what this machine offers, and what is missing"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """It takes none."""

    def run(self, options: argparse.Namespace) -> int:
        """Print the findings."""
        say(_findings())
        return Exit.FINE


def _findings() -> Iterator[str]:
    import torch

    facts = collect(Path.cwd())
    device = devices.find("auto")
    yield f"{'python':17}{facts['python']['version']}"
    for package in _PACKAGES:
        yield f"{package:17}{facts['packages'].get(package, 'not installed')}"
    memory = "" if device.memory_gib is None else f", {device.memory_gib:.0f} GiB"
    yield f"{'device':17}{device.torch_name} ({device.model}{memory})"
    yield f"{'processors':17}{facts['cpu']['usable_cores']} usable"
    yield "precisions"
    for name in catalog.choices("precision"):
        reason = catalog.load("precision", name)().unsupported(torch.device(device.torch_name))
        yield f"  {name:15}{'yes' if reason is None else f'no: {reason}'}"
    yield f"{'workloads':17}{', '.join(catalog.choices('workloads'))}"
