"""What the command line asks for, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from gpubench_plugin.compare.judges import LOOKS
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.environment.redaction import HIDDEN, redacted_command
from gpubench_plugin.errors import UsageProblem


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
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_python(dict(data))

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
