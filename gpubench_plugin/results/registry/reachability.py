"""The registry where it can be had, and one line for the user where it cannot."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.errors import RegistryError
from gpubench_plugin.results.registry.locations import FILE, NONE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Reachable:
    """The registry, or None; `note` says why there is none although one was expected."""

    registry: Registry | None
    note: str = ""


def is_expected(url: str, results_dir: Path) -> bool:
    """Whether there should be a registry: one was asked for, or the default file is there."""
    return url != NONE and (bool(url) or (results_dir / FILE).exists())


@contextmanager
def reachable(url: str, results_dir: Path) -> Iterator[Reachable]:
    """The registry at `url` for the time of a ``with`` block; never raises for its sake.

    The default file, where nobody has written it yet, is not made: then there is no registry and
    nothing to say.
    """
    if not is_expected(url, results_dir):
        yield Reachable(registry=None)
        return
    from gpubench_plugin.results.registry.registry import Registry

    try:
        registry = Registry.open(url, results_dir, create=False)
    except RegistryError as error:
        yield Reachable(registry=None, note=str(error))
        return
    with registry:
        yield Reachable(registry=registry)
