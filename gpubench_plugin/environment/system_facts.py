"""Collection of ``system.json``: where a run was measured."""

from __future__ import annotations

import os
import platform
import sys
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.environment.code import commit_facts
from gpubench_plugin.environment.devices import Device
from gpubench_plugin.environment.fingerprints import machine_facts, tolerates_unknown, torch_facts
from gpubench_plugin.environment.hardware import cpu_facts, gpu_facts
from gpubench_plugin.environment.redaction import recorded_variables, redact_facts
from gpubench_plugin.environment.torch_use import imported_torch
from gpubench_plugin.system import json_files, stored

FORMAT: Final = stored.Format(kind="system facts file", newest=1)

PACKAGES: Final = (
    "pytest-gpubench",
    "torch",
    "triton",
    "numpy",
    "transformers",
    "diffusers",
    "safetensors",
    "timm",
    "torchvision",
    "pytest",
    "pytest-benchmark",
    "pydantic",
    "nvidia-ml-py",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
)
"""Distributions whose version can change a result."""


def collect(rootdir: Path, *, extra_facts: Mapping[str, Any] | None = None) -> Json:
    """Facts of ``system.json`` as JSON values without secrets; unknown ones are None.

    torch is queried only if already imported, and CUDA is not initialised. `rootdir` is in the
    measured repository; `extra_facts` of other plugins replace ours.
    """
    import psutil

    facts = {
        "schema_version": FORMAT.newest,
        "hostname": platform.node(),
        "memory_bytes": psutil.virtual_memory().total,
        "torch": _torch(imported_torch()),
        "git": commit_facts(rootdir),
        "environment_variables": recorded_variables(os.environ),
        **_host_facts(),
    }
    own_facts: Json = json_files.jsonable(facts)
    return {**own_facts, **redact_facts(json_files.jsonable(extra_facts or {}))}


def _host_facts() -> Json:
    """Facts that all processes of a host have in common."""
    return {
        "platform": {
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()).strip() or None,
        },
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "compiler": platform.python_compiler(),
            **interpreter_facts(),
        },
        "cpu": cpu_facts(),
        "gpu": gpu_facts(),
        "packages": package_versions(),
    }


def rank_machine(variables: Mapping[str, str], device: Device, *, uses_torch: bool) -> Json:
    """Machine facts by dot key of a benchmark on this rank.

    They are its recorded `variables`, its `device`, and if it uses it torch's versions and threads.
    """
    known = _torch(imported_torch()) if uses_torch else None
    return {
        f"devices.{device.torch_name}": device.model,
        **machine_facts({"environment_variables": variables}),
        **({} if known is None else torch_facts(known)),
    }


@cache
def host_machine() -> Json:
    """Machine facts by dot key in which the hosts of a run may differ, collected once."""
    known_anywhere = machine_facts(json_files.jsonable(_host_facts()))
    return {k: fact for k, fact in known_anywhere.items() if not tolerates_unknown(k)}


def package_versions() -> dict[str, str]:
    """Versions of the installed ones of :data:`PACKAGES`."""
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _torch(torch: ModuleType | None) -> Json | None:
    """Build versions and thread counts of torch, without creating a CUDA context."""
    if torch is None:
        return None
    return {
        "version": str(torch.__version__),
        "git_commit": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn_version(torch),
        "nccl": nccl_version(torch),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }


def _cudnn_version(torch: ModuleType) -> int | None:
    """Version of cuDNN, as an integer.

    ``torch.backends.cudnn.version`` tells the same, but first asks every device for its capability,
    which starts CUDA.
    """
    with suppress(AttributeError, RuntimeError):
        return int(torch._C._cudnn.getVersionInt())
    return None


def nccl_version(torch: ModuleType) -> str | None:
    """Version of NCCL; None of a build without it."""
    with suppress(AttributeError, ImportError, OSError, RuntimeError):
        return ".".join(map(str, torch.cuda.nccl.version()))
    return None


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
