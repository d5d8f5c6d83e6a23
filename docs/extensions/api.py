"""The names for other projects, whose docstrings Sphinx takes from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module

from _pytest.fixtures import FixtureFunctionDefinition

import gpubench_plugin
from gpubench_plugin.config.fixture_choice import FIXTURE_MODULES
from gpubench_plugin.core import hookspecs
from gpubench_plugin.core.lazy_names import modules_of

BASES = ("workloads", "precision", "measure.metrics", "training.parallelism", "reports.formats")
"""Packages that offer what other projects derive from."""


def public_names() -> str:
    """Functions, records and errors."""
    return _documented("gpubench_plugin", gpubench_plugin.__all__)


def bases() -> str:
    """Base classes and decorators, by package."""
    names = {name: modules_of(import_module(f"gpubench_plugin.{name}").__name__) for name in BASES}
    return "\n".join(
        f"### {package}\n\n{_documented(f'gpubench_plugin.{package}', offered)}"
        for package, offered in (names | {"config.sections": ["ModelSection"]}).items()
    )


def hooks() -> str:
    """Hook specifications."""
    names = [name for name in vars(hookspecs) if name.startswith("pytest_gpubench_")]
    return _documented(hookspecs.__name__, names)


def fixtures() -> str:
    """The fixtures."""
    return _restructured(line for module in FIXTURE_MODULES for line in _fixtures(module))


def _fixtures(module: str) -> Iterator[str]:
    for name, value in vars(import_module(module)).items():
        if isinstance(value, FixtureFunctionDefinition) and not name.startswith("_"):
            yield f".. fixture:: {name}\n"
            yield from (f"   {line}" for line in inspect.cleandoc(value.__doc__ or "").splitlines())


def _documented(package: str, names: Iterable[str]) -> str:
    return _restructured(_directive(package, name) for name in names)


def _directive(package: str, name: str) -> str:
    value, path = getattr(import_module(package), name), f"{package}.{name}"
    if not isinstance(value, type):
        return f".. autofunction:: {path}\n" if callable(value) else ""
    if issubclass(value, BaseException):
        return f".. autoexception:: {path}\n   :show-inheritance:\n"
    return f".. autoclass:: {path}\n"


def _restructured(lines: Iterable[str]) -> str:
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"
