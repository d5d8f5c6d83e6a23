"""The comparison request: command-line options, validated and frozen.

The launches' pytest arguments are the user's, checked and valid in either tree.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from gpubench_plugin.compare.effective_limits import SideName
from gpubench_plugin.compare.looks import LOOK, PAIRS, UNCHANGED_FROM
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.redaction import HIDDEN, redacted_command


@dataclass(frozen=True, kw_only=True)
class Request:
    """A comparison request.

    `here` is the working directory; sides and Pythons are texts of the user. `limits` are by
    metric; stated limits are those of the side `limits_from`. Without `launch_timeout_s` the
    warm-up pair decides how long a launch may take. `time_s` is the time of this command, None for
    no limit. `command` is the command line, without secrets.
    """

    here: Path
    base: str
    head: str | None = None
    base_python: str | None = None
    head_python: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    limits_from: SideName = "base"
    allow_incomparable: bool = False
    gate_missing: str = "pass"
    pairs: int = PAIRS
    time_s: float | None = None
    unchanged_from: int = UNCHANGED_FROM
    launch_timeout_s: float | None = None
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def resumed(self, *, pairs: int | None, time_s: float | None) -> Self:
        """The stored request with other pairs; a time holds for one command.

        Raises:
            UsageProblem: it has secrets, which are not stored.
        """
        if any(HIDDEN in argument for argument in self.arguments):
            raise UsageProblem(
                "--resume: the arguments of pytest contain a secret, which is not stored; start a "
                "new comparison, with the secret in an environment variable"
            )
        return replace(self, pairs=pairs or self.pairs, time_s=time_s)

    @property
    def judging(self) -> dict[str, Any]:
        """Options of the judge, as arguments of :class:`.Tracker`."""
        return {
            "limits": self.limits,
            "limits_from": self.limits_from,
            "allow_incomparable": self.allow_incomparable,
            "exempt": self.exempt_facts,
        }

    @property
    def exempt_facts(self) -> tuple[str, ...]:
        """Key prefixes of facts under comparison, which may differ."""
        if self.base_python is None and self.head_python is None:
            return ()
        return ("python.", "torch.", "packages.")


def parse_pairs(text: str) -> int:
    """Parse the number of pairs, a multiple of five; raises UsageProblem."""
    pairs = int(text) if text.isdecimal() else 0
    if pairs < LOOK or pairs % LOOK:
        raise UsageProblem(
            f"--pairs={text}: not allowed; allowed: {LOOK}, {2 * LOOK}, {3 * LOOK} and so "
            "on, since results are checked after every five pairs"
        )
    return pairs


_TIME: Final = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")


def parse_duration(text: str) -> float:
    """Parse a duration such as ``90s``, ``20m``, ``2h`` or ``1h30m``; raises UsageProblem."""
    parts = _TIME.fullmatch(text.strip())
    hours, minutes, seconds = (int(part or 0) for part in parts.groups()) if parts else (0, 0, 0)
    total = 3600.0 * hours + 60 * minutes + seconds
    if not total:
        raise UsageProblem(
            f"--time={text}: not a duration; allowed: for example 90s, 20m, 2h or 1h30m"
        )
    return total


# Options that launches must not have, and why.
_RESERVED_OPTIONS: Final = {
    "results-dir": "pass it to `gpubench ab` instead, before --",
    "registry": "the launches are not registered as runs",
    "resume": "pass it to `gpubench ab` instead, before --",
    "launches": "each launch of `gpubench ab` is a fresh process already",
    "on": "both sides run on one node: start `gpubench ab` there, as in a job of SLURM",
    "baseline": "`gpubench ab` does the judging, not its launches",
    "gate": "`gpubench ab` does the judging, not its launches",
    "report": "every launch would write it; `gpubench report` makes one of the comparison",
}
_PARALLEL: Final = re.compile(r"-n(auto|logical|\d.*)?|--numprocesses|--dist")
# Options that name a file or folder which every launch would write.
_WRITING: Final = (
    *("--junitxml", "--junit-xml", "--log-file", "--basetemp", "--report-log", "--html"),
    *("--benchmark-json", "--benchmark-histogram", "--benchmark-cprofile-dump"),
)
# Options that name a path in the tree, which must be the side's own.
_IN_TREE: Final = ("-c", "--config-file", "--rootdir", "--confcutdir", "--ignore", "--ignore-glob")


def parse_arguments(texts: Sequence[str], *, cwd: Path, repository: Path | None) -> tuple[str, ...]:
    """Validate pytest's arguments; absolute paths in the repository become relative to `cwd`.

    Raises:
        UsageProblem: an option is reserved, or would make every launch write into its tree.
    """
    arguments = []
    for number, text in enumerate(texts):
        name, separator, value = text.partition("=")
        _refuse_reserved(text, name)
        if name in _WRITING:
            next_argument = "".join(texts[number + 1 : number + 2])
            _refuse_in_tree(name, value if separator else next_argument, cwd, repository)
        option, path = (f"{name}=", value) if separator and name in _IN_TREE else ("", text)
        arguments.append(option + _relative_to_tree(path, cwd, repository))
    return tuple(arguments)


def _refuse_reserved(text: str, name: str) -> None:
    short = name.removeprefix("--").removeprefix("gpubench-")
    if name.startswith("--") and (short in _RESERVED_OPTIONS or short.startswith("gate-")):
        cause = _RESERVED_OPTIONS.get(short, _RESERVED_OPTIONS["gate"])
        raise UsageProblem(f"{redacted_command([text])[0]}: not allowed in the launches: {cause}")
    if _PARALLEL.fullmatch(name):
        raise UsageProblem(f"{text}: benchmarks must not run beside other work; leave it out")


def _refuse_in_tree(name: str, value: str, cwd: Path, repository: Path | None) -> None:
    target = Path(os.path.normpath(cwd / value))
    if target.is_relative_to(cwd if repository is None else repository):
        raise UsageProblem(
            f"{name}={value}: every launch would write this file into the tree under "
            "measurement; leave it out (verdicts.json has the results), or give a path "
            "outside the tree"
        )


def _relative_to_tree(text: str, cwd: Path, repository: Path | None) -> str:
    """Make `text` relative to `cwd` if it starts with an absolute path in the repository."""
    path, separator, test = text.partition("::")
    if repository is None or not path.startswith("/") or not Path(path).is_relative_to(repository):
        return text
    return os.path.relpath(path, cwd) + separator + test
