"""Interpreter settings that change execution speed, for the record."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Mapping
from typing import Final

from gpubench_plugin.core.records import Json

_USUAL_ALLOCATORS: Final = frozenset({"", "default", "pymalloc"})


def interpreter_facts(environ: Mapping[str, str] = os.environ) -> Json:
    """Unusual interpreter settings by name; empty for a plain interpreter.

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
    """Whether a setting requires the flag ``instrumented``: all but a non-checking allocator."""
    facts = interpreter_facts(environ)
    return bool(facts.keys() - {"malloc"}) or facts.get("malloc", "").endswith("debug")


def interpreter_options() -> list[str]:
    """Command line options that give another Python the same speed settings."""
    options = ["-O"] * sys.flags.optimize
    for name in ("dev", "tracemalloc"):
        if value := sys._xoptions.get(name):
            options += ["-X", name if value is True else f"{name}={value}"]
    return options
