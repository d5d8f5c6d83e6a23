"""``gpubench measure``: benchmarks of a model by its name, without a test file."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from gpubench_plugin.cli.commands.base import Command
from gpubench_plugin.config.model_request import ModelRequest, add_arguments
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.results.reproduction import replay_arguments


class Measure(Command):
    """Measures a model, with random weights and inputs, in an ordinary session of pytest.

    hf:NAME is a type of model of transformers, a folder with a config.json, or a name to download.
    Options of pytest may follow: --precision=fp32,bf16 --device=cuda --world-size=2 --baseline=last
    """

    help: ClassVar[str] = "measure a model by its name, without a test file"
    passes_on: ClassVar[bool] = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the request, and where to save it."""
        parser.usage = "gpubench measure MODEL [options] [options of pytest]"
        add_arguments(parser)
        parser.add_argument("--save", metavar="FILE", help="write the test file, and run that")
        text = "with a model: keep failed checks in this folder; else repeat the one kept there"
        parser.add_argument("--repro", metavar="DIR", help=text)

    def run(self, options: argparse.Namespace) -> int:
        """Become pytest."""
        # The model is no argument of the parser, which would take an option's value for it.
        model, rest = options.passed_on[:1], options.passed_on[1:]
        if not model or model[0].startswith("-"):
            model, rest = [], options.passed_on
        if options.repro and not model:
            arguments = replay_arguments(Path(options.repro))
        else:
            arguments = _arguments(options, model, rest)
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments, *rest])


def _arguments(options: argparse.Namespace, model: Sequence[str], rest: Sequence[str]) -> list[str]:
    """Arguments of pytest for what is asked for, whose module is saved if that is, too."""
    left_out = {*model, *rest}
    for name in ("save", "repro"):
        left_out |= {f"--{name}={getattr(options, name)}", f"--{name}", getattr(options, name)}
    words = shlex.join([*model, *(word for word in options.words[1:] if word not in left_out)])
    request = ModelRequest.parse(words)
    repro = [f"--gpubench-repro={options.repro}"] if options.repro else []
    if not options.save:
        return [f"--gpubench-measure={words}", *repro]
    try:
        with Path(options.save).open("x", encoding="utf-8") as file:
            file.write(request.module)
    except FileExistsError:
        raise UsageProblem(f"--save={options.save}: exists; allowed: a new file") from None
    return [options.save, *repro]
