"""Completion of the command line in a shell, by argcomplete (the extra ``completion``)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.verdicts import LAST

# Variable that the shell's function sets to ask for completions instead of running a command.
REQUESTED: Final = "_ARGCOMPLETE"


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions that a shell asks for, and exit."""
    try:
        import argcomplete
    except ImportError:  # the shell was set up by another environment: run no command
        raise SystemExit(1) from None
    for action in _actions(parser):
        if names := _NAMES.get(str(action.metavar)):
            vars(action)["completer"] = partial(_completions, names)  # argcomplete's attribute
    argcomplete.autocomplete(parser)


def _completions(
    names: Callable[[argparse.Namespace], Iterable[str]],
    parsed_args: argparse.Namespace,
    **_: object,
) -> list[str]:
    with suppress(GpubenchError, OSError):  # completion never reports an error
        return list(names(parsed_args))
    return []


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Arguments of the parser and of its subparsers."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)


def _results_dir(options: argparse.Namespace) -> Path:
    from gpubench_plugin.config.settings import results_dir_from

    return results_dir_from(Path.cwd(), getattr(options, "results_dir", None))


def _runs(options: argparse.Namespace) -> Iterator[str]:
    from gpubench_plugin.results.run_directory import runs_in

    yield LAST
    yield from (run.run_id for run in runs_in(_results_dir(options)))


def _baselines(options: argparse.Namespace) -> Iterator[str]:
    """Baselines of this machine: the registry is not asked, which could take seconds."""
    yield from (file.stem for file in (_results_dir(options) / "baselines").glob("*.json"))


def _benchmarks(options: argparse.Namespace) -> Iterator[str]:
    """Benchmarks of the run that is named before, else of the latest."""
    from gpubench_plugin.cli.benchmark_names import run_benchmarks
    from gpubench_plugin.reports.text import printable
    from gpubench_plugin.results.sources import load_run

    text = getattr(options, "run", None) or getattr(options, "subject", None) or LAST
    run = load_run(text, results_dir=_results_dir(options), cwd=Path.cwd())
    yield from map(printable, run_benchmarks(run.results))


# Names that an argument takes, by its placeholder.
_NAMES: Final[Mapping[str, Callable[[argparse.Namespace], Iterable[str]]]] = {
    "RUN": _runs,
    "RUN|BASELINE": lambda options: chain(_runs(options), _baselines(options)),
    "RUN|COMPARISON": _runs,
    "BASELINE": _baselines,
    "BENCHMARK": _benchmarks,
}
