"""Catalog of components in folders and entry points.

A module in the folder of a kind holds one component, or several if the kind allows that. One of
kind ``precision``, for example, is a subclass of ``BASE`` of ``gpubench_plugin/precision/base.py``;
one of kind ``metrics`` a decorated function. Modules called ``base`` or starting with ``_``, and
folders of another kind within, have no components. The name of a component
is its own attribute ``name``, or if it is the only one of its module (or package) the module's name
with ``-`` for ``_``.

Other distributions add components by entry points of the group ``gpubench.<kind>``, for example
``[project.entry-points."gpubench.precision"]``.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from gpubench_plugin.core.errors import UsageProblem, suggest

_P = ParamSpec("_P")
_R = TypeVar("_R")

_PACKAGES = {
    "collectives": "workloads/collectives",
    "commands": "cli/commands",
    "data": "training/data",
    "engines": "engines",
    "formats": "reports/formats",
    "launchers": "launchers/ways",
    "metrics": "measure/metrics",
    "optimizers": "training/optimizers",
    "parallelism": "training/parallelism",
    "precision": "precision",
    "schedulers": "training/schedulers",
    "workloads": "workloads",
}

_SEVERAL_PER_MODULE = frozenset({"formats", "metrics", "precision", "schedulers"})
"""Kinds whose modules may have several components, each with a `name`.

To list them the modules are imported, which is cheap. Those of other kinds import heavy libraries:
their components are listed by file names.
"""


class Function(Generic[_P, _R]):
    """Component that is one function, with the function's name and docstring."""

    decorator: ClassVar[str]
    """Decorator of components of the kind, for messages."""

    where: str = "everywhere"
    """Availability, as ``gpubench list`` prints it."""

    def __init__(self, function: Callable[_P, _R]):
        self._function = function
        self.name = function.__name__.replace("_", "-")
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the decorated function."""
        return self._function(*args, **kwargs)


def kinds() -> tuple[str, ...]:
    """Kinds of components, as ``gpubench list`` takes them."""
    return tuple(_PACKAGES)


def choices(kind: str) -> tuple[str, ...]:
    """Sorted names of all components of `kind`, without importing torch."""
    return tuple(sorted({*_built_in(kind), *_entry_points(kind)}))


def load(kind: str, name: str, *, key: str = "") -> Any:
    """Component called `name`: a subclass of the kind's base, or a :class:`Function`.

    Raises:
        UsageProblem: there is no such component; the message names the `key` of the configuration
            that asks for it, and lists the choices.
    """
    built_in = _built_in(kind)
    point = _entry_points(kind).get(name)
    if name not in built_in:
        if point is None:
            noun, known = kind.removesuffix("s"), choices(kind)
            hint = suggest(name, known, aliases(kind) if kind in _SEVERAL_PER_MODULE else {})
            problem = f"unknown {noun} {name!r}{hint}; allowed: {', '.join(known)}"
            raise UsageProblem(f"{key}: {problem}" if key else problem)
        return _from_entry_point(point, kind)
    if point is not None:
        # Results are compared by name, which must mean the same on every machine.
        raise UsageProblem(
            f"the entry point gpubench.{kind}:{name} uses the name of a built-in component"
        )
    default = None if kind in _SEVERAL_PER_MODULE else name
    components = _components(kind, built_in[name])
    return next(one for one in components if vars(one).get("name", default) == name)


def aliases(kind: str) -> dict[str, tuple[str, ...]]:
    """Components that each other word stands for, for suggestions: their `aliases`.

    Words that the kind's base class lists as `unlike_any` stand for none.
    """
    names: dict[str, tuple[str, ...]] = dict.fromkeys(
        getattr(_base_class(kind), "unlike_any", ()), ()
    )
    for name in choices(kind):
        for alias in getattr(load(kind, name), "aliases", ()):
            names[alias] = (*names.get(alias, ()), name)
    return names


@cache
def _built_in(kind: str) -> dict[str, str]:
    """Module of each built-in component, by component name."""
    modules = _modules(kind)
    if kind not in _SEVERAL_PER_MODULE:
        return modules
    return {
        name: module
        for module in modules.values()
        for component in _components(kind, module)
        if (name := vars(component).get("name"))  # a shared base class has none
    }


def _components(kind: str, module_name: str) -> list[Any]:
    """Components defined in the module or package."""
    base = _base_class(kind)
    return [
        value
        for value in vars(importlib.import_module(module_name)).values()
        if _is_component(value, base) and value.__module__.startswith(module_name)
    ]


def _is_component(value: object, base: type) -> bool:
    if issubclass(base, Function):
        return isinstance(value, base)
    return isinstance(value, type) and issubclass(value, base)


@cache
def _modules(kind: str) -> dict[str, str]:
    package = _PACKAGES[kind]
    folder = Path(__file__).parents[1] / package
    others = {"base", *(other.removeprefix(f"{package}/") for other in _PACKAGES.values())}
    return {
        info.name.replace("_", "-"): f"{_package(kind)}.{info.name}"
        for info in pkgutil.iter_modules([str(folder)])
        if info.name not in others and not info.name.startswith("_")
    }


def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return _entry_points_on_path(tuple(sys.path))[kind]


@cache
def _entry_points_on_path(path: tuple[str, ...]) -> dict[str, dict[str, EntryPoint]]:
    """Entry points on `path`, ``sys.path``, by kind and name; all distributions are read."""
    points: Any = entry_points()  # of another type before Python 3.12
    return {
        kind: {point.name: point for point in points.select(group=f"gpubench.{kind}")}
        for kind in _PACKAGES
    }


def _base_class(kind: str) -> Any:
    """``BASE`` class of the kind's ``base.py``."""
    return importlib.import_module(f"{_package(kind)}.base").BASE


def _package(kind: str) -> str:
    return f"gpubench_plugin.{_PACKAGES[kind].replace('/', '.')}"


def _from_entry_point(entry_point: EntryPoint, kind: str) -> Any:
    where = f"the entry point gpubench.{kind}:{entry_point.name}"
    try:
        component: object = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise UsageProblem(f"{where} = {entry_point.value}: {error}") from error
    base = _base_class(kind)
    if not _is_component(component, base):
        raise UsageProblem(f"{where} must name {_form(base)}")
    return component


def _form(base: type) -> str:
    """Form of the components of a kind, for messages."""
    if issubclass(base, Function):
        return f"a function decorated with {base.decorator}"
    return f"a subclass of {base.__name__}"
