"""Counts the structure of the package from its import graph, type-checking imports included.

A room is a package or module directly under ``gpubench_plugin/``, an arrow at least one import from
a room to another, a floor a step of the longest chain of rooms. Circles are counted between the
children of every package. Exit code 1 if there is one.

    PYTHONPATH=CHECKOUT python tools/evidence/structure.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import grimp

PACKAGE = "gpubench_plugin"
SHORT = 25
"""Lines below which a module is a short one; ``__init__.py`` does not count."""

Arrows = Mapping[str, frozenset[str]]


def children(graph: grimp.ImportGraph, package: str) -> Arrows:
    """The children of `package`, each with those it imports, itself or what lies in it."""
    own = graph.find_children(package)

    def child_of(module: str) -> str | None:
        return next((one for one in own if f"{module}.".startswith(f"{one}.")), None)

    arrows: dict[str, set[str]] = {one: set() for one in own}
    for module in graph.modules:
        if importer := child_of(module):
            targets = map(child_of, graph.find_modules_directly_imported_by(module))
            arrows[importer] |= {target for target in targets if target not in (None, importer)}
    return {one: frozenset(targets) for one, targets in arrows.items()}


def in_circles(arrows: Arrows) -> set[str]:
    """Those from which a chain of arrows leads back to themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [*arrows[start]]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting += arrows[one]
        return seen

    return {one for one in arrows if one in reached(one)}


def floors(arrows: Arrows) -> int:
    """The length of the longest chain, of arrows without a circle."""

    @cache
    def floor(one: str) -> int:
        return 1 + max(map(floor, arrows[one]), default=0)

    return max(map(floor, arrows))


def main() -> int:
    """Print the figures, and fail where there is a circle."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=False, cache_dir=None)
    rooms = children(graph, PACKAGE)
    packages = [m for m in sorted(graph.modules) if graph.find_children(m)]
    circles = {p: found for p in packages if (found := in_circles(children(graph, p)))}
    files = [f for f in Path(package_folder()).rglob("*.py") if f.name != "__init__.py"]
    short = [f for f in files if len(f.read_text(encoding="utf-8").splitlines()) < SHORT]
    print(
        f"rooms {len(rooms)}, arrows {sum(map(len, rooms.values()))}, modules {len(graph.modules)}"
    )
    print(f"floors {'-' if PACKAGE in circles else floors(rooms)}")
    print(f"modules of fewer than {SHORT} lines {len(short)}")
    for package, names in circles.items():
        print(f"circle in {package}: {', '.join(sorted(names))}")
    print(f"packages with a circle {len(circles)}")
    return 1 if circles else 0


def package_folder() -> str:
    """The folder of the package that is counted."""
    import importlib.util

    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent)


if __name__ == "__main__":
    sys.exit(main())
