"""What a comparison that goes on may be asked anew: all else stays as it was asked at first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from gpubench_plugin.cli.ab.request import Asked
from gpubench_plugin.environment.redaction import redacted_command
from gpubench_plugin.errors import UsageProblem

_ANEW: Final = frozenset({"pairs", "launch_timeout_s"})


def resumed(before: Asked, given: Mapping[str, Any], option: str) -> Asked:
    """What is asked of the comparison now; what was not `given` is as `before`.

    Args:
        before: what the comparison was asked for at first.
        given: fields of :class:`Asked` that the command line has now.
        option: ``--resume`` as it was given, for messages.

    Raises:
        UsageProblem: something that was given contradicts what was asked; or arguments are needed
            again, since they had secrets, which are not recorded.
    """
    recorded = asdict(before)
    changed = [
        f"{_option(name)}: {_shown(name, value)}, but it was {_shown(name, recorded[name])}"
        for name, value in given.items()
        if name not in _ANEW and _recorded(name, value) != recorded[name]
    ]
    if changed:
        raise UsageProblem(
            f"{option}: it goes on with what was asked at first. {'; '.join(changed)}. Leave that "
            "out, or begin anew without --resume"
        )
    if not before.complete and "arguments" not in given:
        raise UsageProblem(
            f"{option}: secrets in the arguments of pytest were not recorded; give them again "
            "after --"
        )
    return replace(before, **given)


def _option(name: str) -> str:
    if name == "arguments":
        return "the arguments of pytest"
    return "--limit" if name == "limits" else f"--{name.replace('_', '-')}"


def _recorded(name: str, value: Any) -> Any:
    return redacted_command(value) if name == "arguments" else value


def _shown(name: str, value: Any) -> str:
    """What was given for a field, without secrets, in words."""
    if name == "arguments":
        return " ".join(redacted_command(value)) or "none"
    if name == "limits":
        return " ".join(f"{metric}={limit}" for metric, limit in value.items()) or "none"
    if isinstance(value, bool):
        return "given" if value else "not given"
    return repr(value) if value is not None else "not given"
