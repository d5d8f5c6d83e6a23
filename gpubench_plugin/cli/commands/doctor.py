"""``gpubench doctor``: what this machine supports and what disturbs measurements on it."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import isfunction
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final, Literal, TypeVar

from gpubench_plugin.cli.commands._places import add_format, add_option, output_width, show
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.cli.doctor import gpus as gpu_checks
from gpubench_plugin.cli.doctor import host, software
from gpubench_plugin.cli.doctor.machine import Fact, Gpu, Machine, Unknown
from gpubench_plugin.config.settings import results_dir_from
from gpubench_plugin.core import catalog
from gpubench_plugin.environment import nvml
from gpubench_plugin.environment.hardware import usable_cores
from gpubench_plugin.environment.system_facts import package_versions
from gpubench_plugin.reports.table import labelled

_PACKAGES: Final = (
    "pytest-gpubench",
    "torch",
    "pytest",
    "pytest-benchmark",
    "transformers",
    "diffusers",
)
_WITHOUT_TORCH: Final = "cpu; other devices need torch"

Subject = TypeVar("Subject", Machine, Gpu)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of the check `name`: `value` is the fact in words, or why it is `unknown`.

    A `warning` has an `advice`, and an unknown fact may have one. `device` is the GPU, None of
    other checks.
    """

    name: str
    section: str
    device: str | None = None
    outcome: Literal["ok", "warning", "unknown"]
    value: str
    advice: str = ""


def checks(module: ModuleType) -> list[Callable[[Any], Fact]]:
    """The checks in a `module`, in the order in which they run and are shown: its own functions."""
    functions = (each for each in vars(module).values() if isfunction(each))
    return [f for f in functions if f.__module__ == module.__name__ and f.__name__[0] != "_"]


def examine(machine: Machine) -> Iterator[Finding]:
    """Findings of all checks; those of a GPU once for each."""
    for check in checks(host):
        yield finding(check, machine, "machine")
    for gpu in machine.gpus:
        for check in checks(gpu_checks):
            yield finding(check, gpu, f"GPU {gpu.index} ({gpu.name})")
    # Last: the process of torch starts CUDA, which takes the GPUs' memory and raises their clocks.
    for check in checks(software):
        yield finding(check, machine, "software")


def finding(check: Callable[[Subject], Fact], subject: Subject, section: str) -> Finding:
    """What `check` finds; unknown with the reason if it fails."""
    is_gpu = isinstance(subject, Gpu)
    outcome: Literal["ok", "warning", "unknown"] = "unknown"
    try:
        value, advice = check(subject)
        outcome = "warning" if advice else "ok"
    except Unknown as error:
        value, advice = str(error), error.advice
    except Exception as error:  # what a kernel, a driver or a library answers is not ours
        value, advice = f"{type(error).__name__}: {error}", ""
    return Finding(
        name=f"gpu_{check.__name__}" if is_gpu else check.__name__,
        section=section,
        device=section if is_gpu else None,
        outcome=outcome,
        value=value,
        advice=advice,
    )


class Doctor(Command):
    """Shows what this machine supports and what disturbs measurements on it; changes nothing.

    Exits with 0 even if something does.
    """

    help: ClassVar[str] = "show what this machine supports and what disturbs measurements on it"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Results folder, whose disk is examined, and output format."""
        add_option(parser, "results_dir")
        add_format(parser, ("table", "json"))

    def run(self, options: argparse.Namespace) -> int:
        """Print what may disturb measurements on this machine."""
        results_dir = results_dir_from(Path.cwd(), options.results_dir)
        with nvml.opened() as library:
            machine = Machine(results=results_dir, library=library)
            findings = [*examine(machine)]
            support = {
                "python": platform.python_version(),
                "packages": package_versions(),
                "usable_cores": len(usable_cores()),
                "workloads": [*catalog.choices("workloads")],
                "torch": machine.torch_or_error,
            }
        # A line each in a file or pipe, for grep.
        width = output_width() if sys.stdout.isatty() else sys.maxsize
        rows = (*_support_rows(support), ("", ""), *_rows(findings))
        lines = (line for start, text in rows for line in labelled(start, text, width))
        show(options, {**support, "checks": [asdict(finding) for finding in findings]}, lines)
        return ExitCode.OK


def _support_rows(support: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    torch, device = support["torch"], support["torch"]["device"]
    text = f"unknown: torch cannot be examined: {torch['error']}"
    if device is not None:
        memory = "" if device["memory_gib"] is None else f", {device['memory_gib']:.0f} GiB"
        text = f"{device['name']} ({device['model']}{memory})"
    rows = {
        "python": support["python"],
        **{name: support["packages"].get(name, "not installed") for name in _PACKAGES},
        "device": text if device or "torch" in support["packages"] else _WITHOUT_TORCH,
        "processors": f"{support['usable_cores']} usable",
        "precisions": "" if torch["precisions"] else "unknown without torch",
        **{
            f"  {name}": "yes" if reason is None else f"no: {reason}"
            for name, reason in (torch["precisions"] or {}).items()
        },
        "workloads": ", ".join(support["workloads"]),
    }
    return ((f"{name:17}", text) for name, text in rows.items())


def _rows(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """A row per finding, below the heading of its section."""
    for section, group in groupby(findings, key=lambda finding: finding.section):
        yield "", section
        for finding in group:
            advice = f"; {finding.advice}" if finding.advice else ""
            yield f"  {finding.name:17}{finding.outcome:9}", f"{finding.value}{advice}"
