"""``gpubench doctor``: capabilities of this machine, and what is missing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from gpubench_plugin import catalog
from gpubench_plugin.cli.commands._places import echo
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.environment import collect, devices

_PACKAGES = ("pytest-gpubench", "torch", "pytest", "pytest-benchmark", "transformers", "diffusers")


class Doctor(Command):
    """Shows versions, the device that "auto" selects, and the supported precisions."""

    help: ClassVar[str] = "show what this machine supports and what is missing"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """No arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Print the report."""
        echo(_report_lines())
        return ExitCode.OK


def _report_lines() -> Iterator[str]:
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
