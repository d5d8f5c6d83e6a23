"""The command ``gpubench``: what this machine offers, and the published schemas."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin import catalog, devices
from gpubench_plugin.errors import GpubenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_USAGE_ERROR: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 2 bad usage."""
    options = _parser().parse_args(arguments)
    try:
        for line in options.lines():
            sys.stdout.write(f"{line}\n")
    except GpubenchError as error:
        sys.stderr.write(f"gpubench: {error}\n")
        return _USAGE_ERROR
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpubench", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('pytest-gpubench')}"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="what this machine offers, and what is missing")
    doctor.set_defaults(lines=_doctor)
    schema = commands.add_parser("schema", help="print the JSON Schema of summary.json")
    schema.set_defaults(lines=_schema)
    return parser


def _doctor() -> Iterator[str]:
    """Versions, the device that ``auto`` means, and each precision with a reason if it is not."""
    import torch

    from gpubench_plugin.results.environment import collect

    facts = collect(Path.cwd())
    device = devices.find("auto")
    yield f"{'python':17}{facts['python']['version']}"
    for package in ("pytest-gpubench", "torch", "pytest", "pytest-benchmark", "transformers"):
        yield f"{package:17}{facts['packages'].get(package, 'not installed')}"
    memory = "" if device.memory_gib is None else f", {device.memory_gib:.0f} GiB"
    yield f"{'device':17}{device.torch_name} ({device.model}{memory})"
    yield f"{'processors':17}{facts['cpu']['usable_cores']} usable"
    yield "precisions"
    for name in catalog.choices("precision"):
        reason = catalog.load("precision", name)().unsupported(torch.device(device.torch_name))
        yield f"  {name:15}{'yes' if reason is None else f'no: {reason}'}"
    yield f"{'workloads':17}{', '.join(catalog.choices('workloads'))}"


def _schema() -> Iterator[str]:
    from gpubench_plugin.results.summary import schema_text

    yield schema_text().rstrip("\n")
