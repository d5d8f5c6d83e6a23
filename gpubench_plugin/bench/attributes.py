"""Attributes of pytest-benchmark's fixture that ``gpubench`` has, and one line about all others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gpubench_plugin.core.errors import CERTAIN, NoAttribute, alike, did_you_mean

_SET: Final = ("extra_info", "group")
_READ: Final = (*_SET, "disabled", "enabled", "fullname", "name", "param", "params", "stats")


def check_read(name: str, own: Collection[str]) -> None:
    """Refuse to read what pytest-benchmark's fixture has not, or has for itself.

    Raises:
        NoAttribute: it names the nearest, of the fixture's `own` ones as well.
    """
    if name not in _READ:
        raise NoAttribute(f"gpubench.{name}: no such attribute{_hint(name, {*_READ, *own})}")


def check_set(name: str) -> None:
    """Refuse to set an attribute that is not for it; raises NoAttribute, as :func:`check_read`."""
    if name not in _SET:
        raise NoAttribute(f"gpubench.{name} = …: it cannot be set{_hint(name, _SET)}")


def _hint(name: str, known: Collection[str]) -> str:
    names = sorted(name for name in known if not name.startswith("_"))
    meant = did_you_mean(alike(name, names, cutoff=CERTAIN))
    return f"{meant}; allowed: {', '.join(names)}"
