"""The catalog: components found by their folder or entry point, and lazy imports of public names.

A folder is a registry: every module in it adds a component, and no list is kept anywhere. A
component of kind ``precision``, for example, is a class deriving from the base class in
``gpubench_plugin/precision/base.py``, alone in its module (or package). Its name is the module's
with ``-`` for ``_``. Modules called ``base`` or starting with ``_`` are not components. A module of
metrics may hold several, each with a ``name`` of its own.

A user's own distribution adds components by entry points of the group ``gpubench.<kind>``, for
example ``[project.entry-points."gpubench.precision"]``.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from gpubench_plugin.errors import UsageProblem, not_one_of

_ROOMS = {
    "collectives": "distributed/collectives",
    "commands": "cli/commands",
    "data": "training/data",
    "formats": "reports/formats",
    "metrics": "measure/metrics",
    "optimizers": "training/optimizers",
    "parallelism": "distributed/parallelism",
    "precision": "precision",
    "schedulers": "training/schedulers",
    "workloads": "workloads",
}


_SEVERAL_PER_MODULE = frozenset({"metrics"})
"""Kinds whose components say their names themselves: their modules are imported to list them."""


def kinds() -> tuple[str, ...]:
    """The kinds of component there are."""
    return tuple(_ROOMS)


def choices(kind: str) -> tuple[str, ...]:
    """The names of all components of `kind`, sorted; only those of metrics are imported for it."""
    return tuple(sorted({*_built_in(kind), *_plugged_in(kind)}))


def load(kind: str, name: str) -> type:
    """The component class called `name`.

    Raises:
        UsageProblem: there is no such component; the message lists those that exist.
    """
    built_in = _built_in(kind)
    point = _plugged_in(kind).get(name)
    if name not in built_in:
        if point is None:
            raise not_one_of(kind, name, choices(kind))
        return _from_entry_point(point, kind)
    if point is not None:
        # Results are compared by name: it must not mean something else on another machine.
        raise UsageProblem(f"the entry point gpubench.{kind}:{name} takes a built-in name")
    if kind in _SEVERAL_PER_MODULE:
        return next(c for c in _components(kind, built_in[name]) if _name(c) == name)
    components = _components(kind, built_in[name])
    if len(components) != 1:
        message = f"{built_in[name]} must define exactly one subclass of {_base(kind).__name__}"
        raise UsageProblem(message)
    return components[0]


def _built_in(kind: str) -> dict[str, str]:
    """The module of each component of ours, by the component's name."""
    if kind not in _SEVERAL_PER_MODULE:
        return _modules(kind)
    modules = _modules(kind).values()
    return {_name(c): module for module in modules for c in _components(kind, module)}


def _components(kind: str, module_name: str) -> list[type]:
    """The component classes that the module, or package, defines."""
    base = _base(kind)
    return [
        value
        for value in vars(importlib.import_module(module_name)).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__.startswith(module_name)
    ]


def _name(component: type) -> str:
    name: str = vars(component)["name"]
    return name


def _modules(kind: str) -> dict[str, str]:
    folder = Path(__file__).parent / _ROOMS[kind]
    package = f"{__package__}.{_ROOMS[kind].replace('/', '.')}"
    return {
        info.name.replace("_", "-"): f"{package}.{info.name}"
        for info in pkgutil.iter_modules([str(folder)])
        if info.name != "base" and not info.name.startswith("_")
    }


def _plugged_in(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in _installed(f"gpubench.{kind}", tuple(sys.path))}


@cache
def _installed(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of `group` on `path`, which is ``sys.path``: all files are read for them."""
    return tuple(entry_points(group=group))


def _base(kind: str) -> type:
    """What the kind's ``base.py`` calls ``BASE``."""
    package = f"{__package__}.{_ROOMS[kind].replace('/', '.')}"
    module = importlib.import_module(f"{package}.base")
    base: type = module.BASE
    return base


def _from_entry_point(point: EntryPoint, kind: str) -> type:
    try:
        component: object = point.load()
    except (ImportError, AttributeError) as error:
        message = f"the entry point gpubench.{kind}:{point.name} = {point.value}: {error}"
        raise UsageProblem(message) from error
    base = _base(kind)
    if isinstance(component, type) and issubclass(component, base):
        return component
    message = (
        f"the entry point gpubench.{kind}:{point.name} must name a subclass of {base.__name__}"
    )
    raise UsageProblem(message)
