"""``gpubench measure``: benchmarks of a model by its name, without a test file."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import ClassVar

from gpubench_plugin.cli.commands.base import Command
from gpubench_plugin.config.model_request import ModelRequest, add_arguments
from gpubench_plugin.core.errors import UsageProblem


class Measure(Command):
    """Measures a model, with random weights and inputs, in an ordinary session of pytest.

    hf:NAME is a type of model of transformers, a folder with a config.json, or a name to download.
    Options of pytest may follow: --precision=fp32,bf16 --device=cuda --world-size=2 --baseline=last
    """

    help: ClassVar[str] = "measure a model by its name, without a test file"
    passes_on: ClassVar[bool] = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the request, and where to save it."""
        add_arguments(parser)
        parser.add_argument("--save", metavar="FILE", help="write the test file, and run that")

    def run(self, options: argparse.Namespace) -> int:
        """Become pytest."""
        left_out = {*options.passed_on, f"--save={options.save}", "--save", options.save}
        request = ModelRequest.parse(
            shlex.join(word for word in options.words[1:] if word not in left_out)
        )
        selection = f"--gpubench-measure={request.words}"
        if options.save:
            selection = options.save
            try:
                with Path(selection).open("x", encoding="utf-8") as file:
                    file.write(request.module)
            except FileExistsError:
                raise UsageProblem(f"--save={selection}: exists; allowed: a new file") from None
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "pytest", selection, *options.passed_on])
