"""``gpubench gpu-check``: what only a GPU can show, as one record."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    add_format,
    discard_output,
    echo,
    echo_json,
    offer,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core.errors import UsageProblem, invalid_choice
from gpubench_plugin.environment import stored
from gpubench_plugin.reports.text import printable

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.record import GpuCheck as Record
    from gpubench_plugin.cli.gpu_check.record import StageResult

_PARTS: Final = ("proof", "speed", "all")
_BUDGET_S: Final = 540.0


class GpuCheck(Command):
    """Runs the checks and headline measurements that need a GPU.

    Each stage runs in a process of its own with a time limit. gpu-check.json and gpu-check.md are
    rewritten after each. Run it in a checkout of gpubench: most stages use its benchmarks. Exits
    with 0 if every stage that the machine supports passed, with 1 if one did not, and with 5
    without a GPU.
    """

    help: ClassVar[str] = "run the checks that need a GPU"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Part, budget, folder."""
        part = parser.add_argument(
            "--part",
            metavar="NAME",
            default="all",
            type=_part,
            help=f"{', '.join(_PARTS)} (default: all)",
        )
        offer(part, _PARTS)
        parser.add_argument(
            "--budget",
            metavar="SECONDS",
            default=_BUDGET_S,
            type=_budget_s,
            help=f"time for all stages; those that do not fit are cut (default: {_BUDGET_S:.0f})",
        )
        add_format(parser, ("text", "json"), default="text")
        parser.add_argument(
            "--out",
            metavar="DIR",
            type=Path,
            help="folder of the record (default: gpu-check in the project's results directory)",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Run the stages, print what comes of each, and where the record is."""
        from gpubench_plugin.cli.gpu_check.driver import Driver, has_gpu, is_proven
        from gpubench_plugin.cli.gpu_check.stages import STAGES
        from gpubench_plugin.config.settings import project_results_dir

        cwd = Path.cwd()
        out = cwd / options.out if options.out else project_results_dir(cwd) / "gpu-check"
        record = Driver(
            stages=STAGES,
            out=out,
            part=options.part,
            budget_s=options.budget,
            progress=_print_stage if options.format == "json" else _print_progress,
        ).run()
        with suppress(BrokenPipeError):
            if options.format == "json":
                echo_json(stored.dump(record))
            else:
                echo(_closing_lines(record, options.out or out))
        if not has_gpu(record):
            return ExitCode.NO_GPU
        return ExitCode.OK if is_proven(record) else ExitCode.REGRESSION


def _part(text: str) -> str:
    if text not in _PARTS:
        raise invalid_choice("--part", text, _PARTS)
    return text


def _budget_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageProblem(f"--budget={text}: not allowed; allowed: seconds above 0, such as 540")
    return seconds


def _print_progress(result: StageResult | str) -> None:
    """A line when a stage begins, on stderr, and some for its result.

    A reader that has gone does not end the check.
    """
    if isinstance(result, str):
        _print_stage(result)
        return
    try:
        echo(_result_lines(result))
        sys.stdout.flush()  # a check that is killed has told what it knew
    except BrokenPipeError:
        discard_output()


def _print_stage(result: StageResult | str) -> None:
    """Name a stage that begins on stderr."""
    if isinstance(result, str):
        with suppress(OSError):
            sys.stderr.write(f"{result} …\n")


def _result_lines(result: StageResult) -> Iterator[str]:
    seconds = f"{result.seconds:.0f} s" if result.seconds else ""
    yield f"  {result.name:15}{result.outcome:12} {seconds:6} {printable(result.reason)}".rstrip()
    for criterion in result.criteria:
        if not criterion.passed:
            value = "unknown" if criterion.value is None else f"{criterion.value:.4g}"
            bound = criterion.bound.replace("_", " ")
            yield f"    {printable(criterion.name)}: {value}, {bound} {criterion.limit:g}"


def _closing_lines(record: Record, out: Path) -> list[str]:
    if all(result.outcome == "unsupported" for result in record.stages):
        return [f"no GPU; recorded in {printable(str(out))}"]
    counts = {
        outcome: sum(result.outcome == outcome for result in record.stages)
        for outcome in dict.fromkeys(result.outcome for result in record.stages)
    }
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return [f"{text}; recorded in {printable(str(out))}"]
