"""What the command line asks for, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from gpubench_plugin.compare.limits import Limit
from gpubench_plugin.compare.paired import LOOKS
from gpubench_plugin.errors import UsageProblem, nearest
from gpubench_plugin.results.redaction import HIDDEN, redacted_command

_OURS: Final = {
    "results-dir": "give it to `gpubench ab` instead, before --",
    "registry": "the launches are no runs of their own",
    "resume": "give it to `gpubench ab` instead, before --",
    "launches": "each launch of `gpubench ab` is a fresh process already",
    "baseline": "`gpubench ab` judges, not its launches",
    "gate": "`gpubench ab` judges, not its launches",
}
"""Options that the launches cannot be given, and why."""
_PARALLEL: Final = ("-n", "--numprocesses", "--dist")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A comparison as it was asked for.

    `here` is the folder the user stood in; texts of sides and Pythons are as they were typed, None
    where they were not given. `limits` are by metric. `launch_timeout_s` is None where the
    rehearsal says how long a launch may take.
    """

    here: Path
    base: str
    head: str | None = None
    base_python: str | None = None
    head_python: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    allow_incomparable: bool = False
    pairs: int = LOOKS[-1]
    launch_timeout_s: float | None = None
    arguments: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values, without the secrets in the arguments."""
        recorded = redacted_command(self.arguments)
        return {**asdict(self), "here": str(self.here), "arguments": list(recorded)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is not as it was written.
        """
        arguments = tuple(map(str, data["arguments"]))
        return cls(**{**data, "here": Path(data["here"]), "arguments": arguments})

    def options(self) -> list[str]:
        """The command line that asks for it, from ``--base`` on, without secrets."""
        told = self.to_json()
        sides = ("base", "head", "base_python", "head_python")
        given = {name.replace("_", "-"): told[name] for name in sides if told[name] is not None}
        return [
            *(f"--{name}={value}" for name, value in given.items()),
            *([] if self.pairs == LOOKS[-1] else [f"--pairs={self.pairs}"]),
            *(f"--limit={metric}={limit}" for metric, limit in self.limits.items()),
            *(["--allow-incomparable"] if self.allow_incomparable else []),
            *("--", *told["arguments"]),
        ]

    @property
    def complete(self) -> bool:
        """Whether no argument was hidden when it was written down."""
        return not any(HIDDEN in argument for argument in self.arguments)

    @property
    def exempt(self) -> tuple[str, ...]:
        """Beginnings of the facts that this comparison is about, so that they may differ."""
        if self.base_python is None and self.head_python is None:
            return ()
        return ("python.", "torch.", "packages.")


def check_pairs(pairs: int) -> int:
    """The number of pairs, which ends at a look; raises UsageProblem."""
    if pairs not in LOOKS:
        allowed = ", ".join(map(str, LOOKS))
        raise UsageProblem(
            f"--pairs={pairs}: not allowed; allowed: {allowed}, the pairs after which one looks"
        )
    return pairs


def limits_from(texts: Sequence[str]) -> dict[str, str]:
    """The limits by metric in texts such as ``step_time_s=3%``; raises UsageProblem."""
    found = {}
    for text in texts:
        metric, equals, limit = text.partition("=")
        if not equals or not metric.strip():
            raise UsageProblem(
                f"--limit={text}: no limit of a metric; allowed: <metric>=<limit> such as "
                "step_time_s=3%"
            )
        Limit.parse(limit, f"--limit={text}")
        found[metric.strip()] = limit.strip()
    return found


def arguments_from(texts: Sequence[str], *, here: Path, repository: Path | None) -> tuple[str, ...]:
    """The arguments of pytest, in which no path leads both sides to the same tree.

    An absolute path in the repository becomes one relative to where the user stands.

    Raises:
        UsageProblem: an option among them is not the launches' to have.
    """
    return tuple(_argument(text, here, repository) for text in texts)


def _argument(text: str, here: Path, repository: Path | None) -> str:
    name = text.partition("=")[0]
    short = name.removeprefix("--").removeprefix("gpubench-")
    if name.startswith("--") and (short in _OURS or short.startswith("gate-")):
        why = _OURS.get(short, _OURS["gate"])
        raise UsageProblem(f"{text}: not an argument for the launches: {why}")
    if name in _PARALLEL or (name[:2] == "-n" and name[2:3].isdigit()):
        raise UsageProblem(f"{text}: nothing is measured beside other work; leave it out")
    if repository is not None and text.startswith("/"):
        path, separator, test = text.partition("::")
        if Path(path).is_relative_to(repository):
            import os.path

            return os.path.relpath(path, here) + separator + test
    return text


def unknown_option(text: str, allowed: Sequence[str]) -> UsageProblem:
    """The error for a word that stands before ``--`` and is no option of the command."""
    return UsageProblem(
        f"{text!r}: not an option of `gpubench ab`{nearest(text, allowed)}; what pytest is to get "
        "stands after --"
    )
