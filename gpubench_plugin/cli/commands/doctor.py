"""``gpubench doctor``: what this machine supports and what disturbs measurements on it."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    add_format,
    add_option,
    output_width,
    show,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.cli.doctor import machine as machines
from gpubench_plugin.cli.doctor.checks import Finding, examine
from gpubench_plugin.cli.doctor.machine import Machine
from gpubench_plugin.config.settings import results_dir_from
from gpubench_plugin.core import catalog
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
        with machines.this_machine(results_dir) as machine:
            findings = [*examine(machine)]
            support = _support(machine)
        # A line each in a file or pipe, for grep.
        width = output_width() if sys.stdout.isatty() else sys.maxsize
        rows = (*_support_rows(support), ("", ""), *_rows(findings))
        lines = (line for start, text in rows for line in labelled(start, text, width))
        show(options, {**support, "checks": [asdict(finding) for finding in findings]}, lines)
        return ExitCode.OK


def _support(machine: Machine) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "packages": package_versions(),
        "usable_cores": len(usable_cores()),
        "workloads": [*catalog.choices("workloads")],
        "torch": machine.torch_or_error,
    }


def _support_rows(support: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    torch, device = support["torch"], support["torch"]["device"]
    text = f"unknown: torch cannot be examined: {torch['error']}"
    if device is not None:
        memory = "" if device["memory_gib"] is None else f", {device['memory_gib']:.0f} GiB"
        text = f"{device['name']} ({device['model']}{memory})"
    rows = {
        "python": support["python"],
        **{name: support["packages"].get(name, "not installed") for name in _PACKAGES},
        "device": text,
        "processors": f"{support['usable_cores']} usable",
        "precisions": "",
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
