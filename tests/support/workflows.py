"""Commands in the jobs of GitHub's workflows."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def scripts(job: Mapping[str, Any]) -> list[str]:
    """What the job's steps run, in their order."""
    return [step["run"] for step in job["steps"] if "run" in step]


def commands(job: Mapping[str, Any], program: str, values: Mapping[str, str]) -> list[list[str]]:
    """The arguments of each command that starts `program`, with the `values` of what they name."""
    found = []
    for command in re.split(r" \|\| | && |; |\n", "\n".join(scripts(job))):
        shown = command
        for name, value in values.items():
            shown = shown.replace(name, value)
        words = shlex.split(shown)
        if words[:1] == [program]:
            found.append(words[1:])
    return found


def problems_of_shell(job: Mapping[str, Any]) -> str:
    """Why bash cannot read the job's scripts; empty where it can."""
    script = "\n".join(scripts(job)).encode()
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, check=False)
    return done.stderr.decode()


def run(script: str, folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step's script as a runner does; its output has what it wrote to either stream."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
