"""The components of this repository, without those that other distributions plug in."""

from __future__ import annotations

from gpubench_plugin.core import catalog


def shipped(kind: str) -> set[str]:
    """The names of the components of a kind whose class is the package's own."""
    return {
        name
        for name in catalog.choices(kind)
        if catalog.load(kind, name).__module__.startswith("gpubench_plugin.")
    }
