"""The catalog: components found by their folder or entry point.

A folder is a registry: every module in it adds a component, and no list is kept anywhere. A
component of kind ``precision``, for example, is a subclass of what ``BASE`` is in
``gpubench_plugin/precision/base.py``; one of kind ``metrics`` a function decorated to be one.
Modules called ``base`` or starting with ``_`` hold no components. A component is called what its
own attribute ``name`` says. Where a module (or package) holds one component it has the module's
name, with ``-`` for ``_``.

A user's own distribution adds components by entry points of the group ``gpubench.<kind>``, for
example ``[project.entry-points."gpubench.precision"]``.
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

from gpubench_plugin.errors import UsageProblem, invalid_choice

_P = ParamSpec("_P")
_R = TypeVar("_R")

_PACKAGES = {
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

_SEVERAL_PER_MODULE = frozenset({"formats", "metrics", "precision", "schedulers"})
"""Kinds whose modules may hold several components, each with a `name`.

To list them their modules are imported, which import no heavy library. Those of other kinds do:
their components are listed by the names of the files.
"""


class Function(Generic[_P, _R]):
    """A component that is one function; its name and its meaning are the function's."""

    decorator: ClassVar[str]
    """What marks a function as a component of the kind."""

    where: str = "everywhere"
    """Where it works, as ``gpubench list`` prints it."""

    def __init__(self, function: Callable[_P, _R]):
        self._function = function
        self.name = function.__name__.replace("_", "-")
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """What the function returns."""
        return self._function(*args, **kwargs)


def kinds() -> tuple[str, ...]:
    """The available component kinds."""
    return tuple(_PACKAGES)


def choices(kind: str) -> tuple[str, ...]:
    """The names of all components of `kind`, sorted; none that needs torch is imported for it."""
    return tuple(sorted({*_built_in(kind), *_entry_points(kind)}))


def load(kind: str, name: str) -> Any:
    """The component called `name`: a subclass of the kind's base, or a :class:`Function`.

    Raises:
        UsageProblem: there is no such component; the message lists those that exist.
    """
    built_in = _built_in(kind)
    point = _entry_points(kind).get(name)
    if name not in built_in:
        if point is None:
            raise invalid_choice(kind, name, choices(kind))
        return _from_entry_point(point, kind)
    if point is not None:
        # Results are compared by name: it must not mean something else on another machine.
        raise UsageProblem(
            f"the entry point gpubench.{kind}:{name} uses the name of a built-in component"
        )
    default = None if kind in _SEVERAL_PER_MODULE else name
    components = [
        component
        for component in _components(kind, built_in[name])
        if vars(component).get("name", default) == name
    ]
    if len(components) != 1:
        raise UsageProblem(
            f"{built_in[name]} must define exactly one component {name!r}: "
            f"{_form(_base_class(kind))}"
        )
    return components[0]


def _built_in(kind: str) -> dict[str, str]:
    """Module of each built-in component, by component name.

    Raises:
        UsageProblem: two modules define components of one name.
    """
    modules = _modules(kind)
    if kind not in _SEVERAL_PER_MODULE:
        return modules
    built_in: dict[str, str] = {}
    for module in modules.values():
        for component in _components(kind, module):
            name = vars(component).get("name")  # none of a base that several of the module share
            if name and built_in.setdefault(name, module) != module:
                raise UsageProblem(f"{kind}: {built_in[name]} and {module} both define {name!r}")
    return built_in


def _components(kind: str, module_name: str) -> list[Any]:
    """The components that the module, or package, defines."""
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


def _modules(kind: str) -> dict[str, str]:
    folder = Path(__file__).parent / _PACKAGES[kind]
    package = f"{__package__}.{_PACKAGES[kind].replace('/', '.')}"
    return {
        info.name.replace("_", "-"): f"{package}.{info.name}"
        for info in pkgutil.iter_modules([str(folder)])
        if info.name != "base" and not info.name.startswith("_")
    }


def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return {
        point.name: point for point in _entry_points_on_path(f"gpubench.{kind}", tuple(sys.path))
    }


@cache
def _entry_points_on_path(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of `group` on `path`, which is ``sys.path``: all files are read for them."""
    return tuple(entry_points(group=group))


def _base_class(kind: str) -> type:
    """The ``BASE`` class declared in the kind's ``base.py``."""
    package = f"{__package__}.{_PACKAGES[kind].replace('/', '.')}"
    module = importlib.import_module(f"{package}.base")
    base: type = module.BASE
    return base


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
    """What a component of the kind is, for a message."""
    if issubclass(base, Function):
        return f"a function decorated with {base.decorator}"
    return f"a subclass of {base.__name__}"
