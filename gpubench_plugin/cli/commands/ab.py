"""``gpubench ab``: measure two versions of the code alternately and judge."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from gpubench_plugin.cli.ab import comparison
from gpubench_plugin.cli.ab.git import Repository
from gpubench_plugin.cli.ab.request import Request, parse_arguments, parse_duration, parse_pairs
from gpubench_plugin.cli.ab.runner import Progress
from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.cli.commands._places import add_format, add_option, echo_report
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.cli.commands.compare import LimitOptions, add_judging, exit_code, with_losses
from gpubench_plugin.compare.effective_limits import SIDES
from gpubench_plugin.compare.looks import MOST_PAIRS
from gpubench_plugin.config.settings import results_dir_from, whole_number
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.environment.redaction import redacted_command
from gpubench_plugin.reports import github
from gpubench_plugin.results.run_directory import writable_file
from gpubench_plugin.system import json_files

# What may be given with --resume.
_RESUMABLE: Final = frozenset(("resume", "pairs", "time", "format", "output"))
# What the parser itself adds.
_OF_PARSER: Final = frozenset(("command", "parser", "words"))


class Ab(Command):
    """Measures base and head alternately in fresh processes and reports regressions.

    Arguments for pytest go after --; their paths are relative to the current directory.
    """

    help: ClassVar[str] = "compare two versions of the code with alternating launches"
    hint_for_unknown: ClassVar[str] = "; pytest's arguments go after --"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options, followed by pytest's arguments."""
        add = parser.add_argument
        add("--base", metavar="REF|DIR", help="git ref or folder to compare against")
        add("--head", metavar="REF|DIR", help="git ref or folder to judge (default: working tree)")
        add("--base-python", metavar="PY", help="Python of the base (default: this one)")
        add("--head-python", metavar="PY", help="Python of the head (default: this one)")
        add("--same", action="store_true", help="measure the same code twice: an A/A test")
        pairs = parser.add_mutually_exclusive_group().add_argument
        pairs("--pairs", metavar="N", type=parse_pairs, help="at most N pairs: 5, 10, 15 (default)")
        text = f"up to {MOST_PAIRS} pairs, until all is decided"
        pairs("--until-decided", action="store_const", dest="pairs", const=MOST_PAIRS, help=text)
        add("--time", type=parse_duration, help="begin no pair after this time: 90s, 20m, 1h30m")
        add_judging(parser, metavar="METRIC=LIMIT", help="such as step_time_s=3%%")
        add("--limits-from", choices=SIDES, help="whose limits apply where they differ (base)")
        seconds = partial(whole_number, "--launch-timeout", 1)
        add("--launch-timeout", metavar="SECONDS", type=seconds, help="timeout of a launch")
        add("--resume", metavar="DIR", help="resume an interrupted comparison")
        add_option(parser, "results_dir")
        add_format(parser, catalog.choices("formats"))
        add("--output", metavar="FILE", help="write the report to this file instead of stdout")
        add("arguments", nargs="*", metavar="-- ARGUMENT", help="arguments for pytest")

    def run(self, options: argparse.Namespace) -> int:
        """Measure, judge, and report."""
        stated = options.output
        output = None if stated is None else writable_file("--output", stated, Path.cwd())
        if options.resume is None:
            request = _request(options)
            sides = comparison.resolve_sides(request)
            if not options.same:
                sides["base"].refuse_same(sides["head"])
            results_dir = results_dir_from(Path.cwd(), options.results_dir)
            state = comparison.new_state(results_dir, request, sides)
        else:
            _refuse_changes(options)
            state = SavedState.read(Path(options.resume).resolve())
            state.request = state.request.resumed(pairs=options.pairs, time_s=options.time)
            sides = comparison.resolve_sides(state.request)
        progress = Progress(sys.stderr)
        progress.message(f"results in {state.folder}")
        try:
            verdicts, locations, advice = comparison.compare(state, sides, progress)
        except (KeyboardInterrupt, SystemExit):
            progress.message(f"interrupted; resume with gpubench ab --resume={state.folder}")
            raise
        missing = state.request.gate_missing
        verdicts = with_losses(verdicts, missing)
        code = exit_code([verdicts], missing)
        if code == ExitCode.NOTHING_COMPARABLE:
            hint = " (see --allow-incomparable)" * verdicts.all_incomparable
            progress.message(f"nothing could be compared{hint}")
        _report(verdicts, locations, state, options.format, output)
        if advice:
            progress.message(advice)
        return code


def _refuse_changes(options: argparse.Namespace) -> None:
    """Refuse options beside ``--resume`` that would make it another comparison."""
    for name, value in vars(options).items():
        if name in _RESUMABLE or name in _OF_PARSER or not value:
            continue
        option = "the arguments of pytest" if name == "arguments" else f"--{name.replace('_', '-')}"
        raise UsageProblem(
            f"--resume={options.resume}: {option} cannot be given again; allowed: --pairs, --time, "
            "--format and --output; for anything else start a new comparison"
        )


def _request(options: argparse.Namespace) -> Request:
    """The comparison that is asked for on the command line."""
    if options.base is None:
        raise UsageProblem("--base is required: a git ref or folder to compare against")
    here = Path.cwd()
    repository = Repository.containing(here)
    top = None if repository is None else repository.top
    names = {field.name for field in fields(Request)}
    stated = {k: v for k, v in vars(options).items() if k in names and v is not None}
    stated |= {
        "here": here,
        "limits": _limits(options),
        "time_s": options.time,
        "launch_timeout_s": options.launch_timeout,
        "arguments": parse_arguments(options.arguments, cwd=here, repository=top),
        "command": redacted_command(("gpubench", *options.words)),
    }
    return Request(**stated)


def _limits(options: argparse.Namespace) -> Mapping[str, str]:
    limits = LimitOptions.parse(options.limit)
    if limits.default_limit:
        raise UsageProblem(
            f"--limit={limits.default_limit}: names no metric; allowed: <metric>=<limit>, for "
            "example step_time_s=3%"
        )
    return limits.by_metric


def _report(
    verdicts: Comparison,
    locations: comparison.Locations,
    state: SavedState,
    format_name: str,
    output: Path | None,
) -> None:
    comparison.write_files(state.folder, verdicts)
    terminal = output is None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 120  # a log shows whole names
    text = comparison.rendered(verdicts, format_name, width=width, color=terminal)
    # The output comes last: GitHub's page is written even if its disk is full.
    annotations, problem = github.publish(verdicts, locations, reproduce=state.request.command)
    sys.stderr.write(f"gpubench ab: {problem}\n" * bool(problem))
    if output is not None:
        json_files.write_text(output, text)
    echo_report("".join(f"{line}\n" for line in annotations) + text * (output is None))
