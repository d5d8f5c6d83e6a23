"""The request for a comparison: what the command line asks for, checked and frozen.

The arguments for the launches' pytest are the user's, checked and valid in either tree.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from gpubench_plugin.compare import (
    LOOK,
    MOST_PAIRS,
    PAIRS,
    UNCHANGED_FROM,
    UNCHANGED_FROM_CHOICES,
    Side,
)
from gpubench_plugin.environment import HIDDEN, redacted_command, stored
from gpubench_plugin.errors import UsageProblem


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A comparison as it was asked for.

    `here` is the folder the user stood in; texts of sides and Pythons are as they were typed, None
    where they were not given. `limits` are by metric; of those that the benchmarks state the ones
    of the side `limits_from` count. `launch_timeout_s` is None where the rehearsal says how long a
    launch may take. With `until_decided` the number of `pairs` does not count. `time_s` is how long
    each go may take, None: as long as it takes. Nothing is called unchanged by fewer pairs than
    `unchanged_from`.
    """

    here: Path
    base: str
    head: str | None = None
    base_python: str | None = None
    head_python: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    limits_from: Side = "base"
    allow_incomparable: bool = False
    pairs: int = PAIRS
    until_decided: bool = False
    time_s: float | None = None
    unchanged_from: int = UNCHANGED_FROM
    launch_timeout_s: float | None = None
    arguments: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values, without the secrets in the arguments."""
        recorded = redacted_command(self.arguments)
        return {**asdict(self), "here": str(self.here), "arguments": list(recorded)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "what was asked") -> Self:
        """What :meth:`to_json` wrote, or an earlier version, which called unchanged by five pairs.

        Raises:
            BrokenFile: it is not as it was written.
        """
        return stored.restored(cls, {"unchanged_from": LOOK, **data}, where)

    def options(self) -> list[str]:
        """The command line that asks for it, from ``--base`` on, without secrets."""
        told = self.to_json()
        sides = ("base", "head", "base_python", "head_python")
        given = {name.replace("_", "-"): told[name] for name in sides if told[name] is not None}
        return [
            *(f"--{name}={value}" for name, value in given.items()),
            *self._extent(),
            *(f"--limit={metric}={limit}" for metric, limit in self.limits.items()),
            *([] if self.limits_from == "base" else [f"--limits-from={self.limits_from}"]),
            *(["--allow-incomparable"] if self.allow_incomparable else []),
            *("--", *told["arguments"]),
        ]

    def _extent(self) -> Iterator[str]:
        if self.until_decided:
            yield "--until-decided"
        elif self.pairs != PAIRS:
            yield f"--pairs={self.pairs}"
        if self.time_s is not None:
            yield f"--time={time_text(self.time_s)}"
        if self.unchanged_from != UNCHANGED_FROM:
            yield f"--unchanged-from={self.unchanged_from}"

    @property
    def last_pair(self) -> int:
        """The pair after which nobody goes on."""
        return MOST_PAIRS if self.until_decided else self.pairs

    @property
    def judging(self) -> dict[str, Any]:
        """How the launches are judged, as arguments of :class:`Findings`."""
        return {
            "limits": self.limits,
            "limits_from": self.limits_from,
            "allow_incomparable": self.allow_incomparable,
            "exempt": self.exempt,
        }

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
    if pairs < LOOK or pairs % LOOK:
        raise UsageProblem(
            f"--pairs={pairs}: not allowed; allowed: {LOOK}, {2 * LOOK}, {3 * LOOK} and so on, "
            "since a look is taken after every five"
        )
    return pairs


def check_unchanged_from(pairs: int) -> int:
    """From how many pairs on things may be called unchanged; raises UsageProblem."""
    if pairs not in UNCHANGED_FROM_CHOICES:
        allowed = ", ".join(map(str, UNCHANGED_FROM_CHOICES))
        raise UsageProblem(f"--unchanged-from={pairs}: not allowed; allowed: {allowed}")
    return pairs


_TIME: Final = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")


def time_from(text: str) -> float:
    """The seconds in a text such as ``90s``, ``20m``, ``2h`` or ``1h30m``; raises UsageProblem."""
    parts = _TIME.fullmatch(text.strip())
    hours, minutes, seconds = (int(part or 0) for part in parts.groups()) if parts else (0, 0, 0)
    total = 3600.0 * hours + 60 * minutes + seconds
    if not total:
        raise UsageProblem(f"--time={text}: no time; allowed: such as 90s, 20m, 2h or 1h30m")
    return total


def time_text(seconds: float) -> str:
    """What :func:`time_from` reads: ``1h30m``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = {"h": hours, "m": minutes, "s": rest}
    return "".join(f"{number}{unit}" for unit, number in parts.items() if number)


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
_WRITING: Final = frozenset(
    (
        *("--junitxml", "--junit-xml", "--log-file", "--basetemp", "--report-log", "--html"),
        *("--benchmark-json", "--benchmark-histogram", "--benchmark-cprofile-dump"),
    )
)
"""Options that name a file or folder which every launch would write."""
_OF_A_PLACE: Final = frozenset(
    ("-c", "--config-file", "--rootdir", "--confcutdir", "--ignore", "--ignore-glob")
)
"""Options that name a place in the tree, so that it has to be the side's own."""


def arguments_from(texts: Sequence[str], *, here: Path, repository: Path | None) -> tuple[str, ...]:
    """The arguments of pytest, in which no path leads both sides to the same tree.

    An absolute path in the repository becomes one relative to where the user stands.

    Raises:
        UsageProblem: an option among them is not the launches' to have, or would make every launch
            write into its tree.
    """
    arguments = []
    for number, text in enumerate(texts):
        name, equals, value = text.partition("=")
        _refuse_ours(text, name)
        if name in _WRITING:
            following = "".join(texts[number + 1 : number + 2])
            _refuse_in_tree(name, value if equals else following, here, repository)
        before, path = (f"{name}=", value) if equals and name in _OF_A_PLACE else ("", text)
        arguments.append(before + _moved(path, here, repository))
    return tuple(arguments)


def _refuse_ours(text: str, name: str) -> None:
    short = name.removeprefix("--").removeprefix("gpubench-")
    if name.startswith("--") and (short in _OURS or short.startswith("gate-")):
        why = _OURS.get(short, _OURS["gate"])
        raise UsageProblem(f"{text}: not an argument for the launches: {why}")
    if name in _PARALLEL or (name[:2] == "-n" and name[2:3].isdigit()):
        raise UsageProblem(f"{text}: nothing is measured beside other work; leave it out")


def _refuse_in_tree(name: str, value: str, here: Path, repository: Path | None) -> None:
    place = Path(os.path.normpath(here / value))
    if place.is_relative_to(here if repository is None else repository):
        raise UsageProblem(
            f"{name}={value}: each launch would write that into the tree that is measured; leave "
            "it out (verdicts.json has all that is found), or give a path outside of the tree"
        )


def _moved(text: str, here: Path, repository: Path | None) -> str:
    """`text`, relative to `here` if it begins with an absolute path in the repository."""
    path, separator, test = text.partition("::")
    if repository is None or not path.startswith("/") or not Path(path).is_relative_to(repository):
        return text
    return os.path.relpath(path, here) + separator + test


_ANEW: Final = frozenset({"pairs", "until_decided", "time_s", "unchanged_from", "launch_timeout_s"})


def resumed(before: Asked, given: Mapping[str, Any], option: str) -> Asked:
    """What is asked of the comparison now; what was not `given` is as `before`.

    Only the fields in ``_ANEW`` may change; all else stays as it was asked for at first. Nothing is
    called unchanged by fewer pairs than before, and a time holds for the go that it is given for.
    `option` is ``--resume`` as it was given, for messages.

    Raises:
        UsageProblem: something that was given contradicts what was asked; or arguments are needed
            again, since they had secrets, which are not recorded.
    """
    recorded = asdict(before)
    changed = [
        f"{_option(name)}: {_shown(name, value)}, but it was {_shown(name, recorded[name])}"
        for name, value in given.items()
        if name not in _ANEW
        and (redacted_command(value) if name == "arguments" else value) != recorded[name]
    ]
    if changed:
        raise UsageProblem(
            f"{option}: it goes on with what was asked at first. {'; '.join(changed)}. Leave that "
            "out, or begin anew without --resume"
        )
    if given.get("unchanged_from", before.unchanged_from) < before.unchanged_from:
        raise UsageProblem(
            f"--unchanged-from={given['unchanged_from']}: with {option} not below "
            f"{before.unchanged_from}, which it began with"
        )
    if not before.complete and "arguments" not in given:
        raise UsageProblem(
            f"{option}: secrets in the arguments of pytest were not recorded; give them again "
            "after --"
        )
    return replace(before, **{"time_s": None, **given})


def _option(name: str) -> str:
    if name == "arguments":
        return "the arguments of pytest"
    return "--limit" if name == "limits" else f"--{name.replace('_', '-')}"


def _shown(name: str, value: Any) -> str:
    """What was given for a field, without secrets, in words."""
    if name == "arguments":
        return " ".join(redacted_command(value)) or "none"
    if name == "limits":
        return " ".join(f"{metric}={limit}" for metric, limit in value.items()) or "none"
    if isinstance(value, bool):
        return "given" if value else "not given"
    return repr(value) if value is not None else "not given"
