"""What makes this interpreter run code at another speed than a plain one, and is on record."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Mapping
from typing import Final

from gpubench_plugin.records import Json

_USUAL_ALLOCATORS: Final = frozenset({"", "default", "pymalloc"})


def interpreter_facts(environ: Mapping[str, str] = os.environ) -> Json:
    """What is not as usual, by name; nothing of a plain interpreter.

    ``optimize``: the level of ``-O``, which leaves assertions out. ``dev_mode``: ``-X dev``.
    ``malloc``: the allocator of ``PYTHONMALLOC``. ``tracemalloc``: every allocation is traced.
    ``debug_build``: Python itself was built for debugging.
    """
    allocator = "" if sys.flags.ignore_environment else environ.get("PYTHONMALLOC", "")
    facts = {
        "optimize": sys.flags.optimize,
        "dev_mode": sys.flags.dev_mode,
        "malloc": "" if allocator in _USUAL_ALLOCATORS else allocator,
        "tracemalloc": tracemalloc.is_tracing(),
        "debug_build": hasattr(sys, "gettotalrefcount"),
    }
    return {name: fact for name, fact in facts.items() if fact}


def is_instrumented(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether one of the facts deserves the flag: all but an allocator that checks nothing."""
    facts = interpreter_facts(environ)
    return bool(facts.keys() - {"malloc"}) or facts.get("malloc", "").endswith("debug")


def interpreter_options() -> list[str]:
    """The options by which another Python becomes like this one, as far as its speed goes."""
    options = ["-O"] * sys.flags.optimize
    for name in ("dev", "tracemalloc"):
        if value := sys._xoptions.get(name):
            options += ["-X", name if value is True else f"{name}={value}"]
    return options
