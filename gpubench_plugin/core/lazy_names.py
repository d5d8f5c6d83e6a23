"""Public names of packages, imported when first used."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORT = r"^    from (gpubench_plugin[\w.]+) import (\([^)]*\)|[\w, ]+)$"


def lazy_names(package: str) -> Callable[[str], object]:
    """Return a module ``__getattr__`` that imports the public names of `package` on first use.

    They are declared once, under ``if TYPE_CHECKING:`` in its ``__init__.py``, which is read at the
    first use.
    """

    def get_attribute(name: str) -> object:
        module = modules_of(package).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return get_attribute


@cache
def modules_of(package: str) -> dict[str, str]:
    """Module of each public name of `package`; by an expression, since ``ast`` took 4 ms more."""
    text = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
    return {
        name: module
        for module, names in re.findall(_IMPORT, text, re.MULTILINE)
        for name in re.findall(r"\w+", names)
    }
