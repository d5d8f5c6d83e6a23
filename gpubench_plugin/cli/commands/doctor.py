"""``gpubench doctor``: what this machine supports, and what on it hurts a measurement."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gpubench_plugin import catalog
from gpubench_plugin.cli.commands._places import (
    add_format,
    add_results_dir,
    echo,
    echo_json,
    results_dir_of,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.environment import ChildError, usable_cores
from gpubench_plugin.environment.system_facts import package_versions
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    from gpubench_plugin.cli.doctor.finding import Finding
    from gpubench_plugin.cli.doctor.machine import Machine

_PACKAGES: Final = (
    "pytest-gpubench",
    "torch",
    "pytest",
    "pytest-benchmark",
    "transformers",
    "diffusers",
)


class Doctor(Command):
    """Shows what this machine supports, and what on it hurts a measurement; changes nothing.

    Exits with 0 also where something does.
    """

    help: ClassVar[str] = "show what this machine supports, and what on it hurts a measurement"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Results folder, whose disk is examined, and output format."""
        add_results_dir(parser)
        add_format(parser, ("table", "json"))

    def run(self, options: argparse.Namespace) -> int:
        """Print the report."""
        from gpubench_plugin.cli.doctor.checks import examine
        from gpubench_plugin.cli.doctor.machine import this_machine

        with this_machine(results_dir_of(options)) as machine:
            findings = [*examine(machine)]
            support = _support(machine)
        if options.format == "json":
            echo_json({**support, "checks": [asdict(finding) for finding in findings]})
        else:
            echo(map(printable_line, (*_support_lines(support), "", *_lines(findings))))
        return ExitCode.OK


def printable_line(line: str) -> str:
    """`line` with its indent, and without control characters: it may quote files and processes."""
    return line[: len(line) - len(line.lstrip(" "))] + printable(line)


def _support(machine: Machine) -> dict[str, Any]:
    torch: Mapping[str, Any] = {"device": None, "precisions": None, "error": ""}
    try:
        torch = {**torch, **machine.torch}
    except ChildError as error:
        torch = {**torch, "error": str(error)}
    return {
        "python": platform.python_version(),
        "packages": package_versions(),
        "usable_cores": usable_cores(),
        "workloads": [*catalog.choices("workloads")],
        "torch": torch,
    }


def _support_lines(support: Mapping[str, Any]) -> Iterator[str]:
    torch = support["torch"]
    yield f"{'python':17}{support['python']}"
    for package in _PACKAGES:
        yield f"{package:17}{support['packages'].get(package, 'not installed')}"
    if (device := torch["device"]) is None:
        yield f"{'device':17}unknown: torch cannot be examined: {torch['error']}"
    else:
        memory = "" if device["memory_gib"] is None else f", {device['memory_gib']:.0f} GiB"
        yield f"{'device':17}{device['name']} ({device['model']}{memory})"
    yield f"{'processors':17}{support['usable_cores']} usable"
    yield "precisions"
    for name, reason in (torch["precisions"] or {}).items():
        yield f"  {name:15}{'yes' if reason is None else f'no: {reason}'}"
    yield f"{'workloads':17}{', '.join(support['workloads'])}"


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    """A line per finding, below the heading of its section."""
    for section, group in groupby(findings, key=lambda finding: finding.section):
        yield section
        for finding in group:
            advice = f"; {finding.advice}" if finding.advice else ""
            yield f"  {finding.name:17}{finding.outcome:9}{finding.value}{advice}"
