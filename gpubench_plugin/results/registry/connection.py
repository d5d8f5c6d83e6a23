"""Optional access to the registry."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.registry.locations import FILE, NONE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The registry or None; `note` explains an unexpected None."""

    registry: Registry | None
    note: str = ""


def is_expected(url: str, results_dir: Path) -> bool:
    """Whether a registry is expected: requested, or the default file exists."""
    return url != NONE and (bool(url) or (results_dir / FILE).exists())


@contextmanager
def connect(url: str, results_dir: Path) -> Iterator[Connection]:
    """Open the registry at `url` for a ``with`` block; never raises.

    A missing default file is not created: then there is no registry and no note.
    """
    if not is_expected(url, results_dir):
        yield Connection(registry=None)
        return
    from gpubench_plugin.results.registry.registry import Registry

    try:
        registry = Registry.open(url, results_dir, create=False)
    except RegistryError as error:
        yield Connection(registry=None, note=str(error))
        return
    with registry:
        yield Connection(registry=registry)
