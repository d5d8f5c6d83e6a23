"""The facts of ``system.json`` that make numbers comparable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

ABSENT = object()
"""Value of a key that one of two records lacks."""


def flat(facts: object) -> dict[str, Any]:
    """Flatten nested mappings and lists of mappings to dot keys: ``gpu.devices.0.name``."""
    flattened: dict[str, Any] = {}
    _flatten(facts, "", flattened)
    return flattened


def _flatten(facts: object, prefix: str, flattened: dict[str, Any]) -> None:
    if facts is None or isinstance(facts, str | int | float):  # the common case first
        flattened[prefix] = facts
        return
    if isinstance(facts, list) and any(isinstance(fact, Mapping) for fact in facts):
        facts = {str(number): fact for number, fact in enumerate(facts)}
    if isinstance(facts, Mapping):
        for name, fact in facts.items():
            _flatten(fact, f"{prefix}.{name}" if prefix else str(name), flattened)
    else:
        flattened[prefix] = facts


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Differing keys of two flat records, with both values, sorted."""
    pairs = {key: (old.get(key, ABSENT), new.get(key, ABSENT)) for key in sorted({*old, *new})}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def change_text(pair: tuple[Any, Any]) -> str:
    """Old and new value of a difference as text."""
    old, new = ("absent" if value is ABSENT else json.dumps(value) for value in pair)
    return f"{old} in the run, {new} now"


_MACHINE: Final = re.compile(
    r"""platform\.(system|machine)
    |python\.(implementation|version|optimize|dev_mode|malloc|tracemalloc|debug_build)
    |cpu\.(model|usable_cores|quota_cores|governor|boost)
    |gpu\.driver|gpu\.topology.*|gpu\.devices\.\d+\.(?!uuid).*
    |devices\..*
    |packages\.(triton|numpy|nvidia-\w+(-\w+)*)
    |gpubench\.measuring_method
    |environment_variables\.(
        (OMP|GOMP|MKL|KMP|OPENBLAS|BLIS|VECLIB|NUMEXPR|CUBLAS|MALLOC)_(?!HOME$|ROOT$|DIR$|PATH$)\w+
        |LD_PRELOAD|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32\w*
        # Neither paths of a job nor the build of an image: torch.version is enough.
        |PYTORCH_(?!HOME$|BUILD_\w+$|VERSION$|\w+_(VERSION|CACHE|PATH|DIR)$)\w+
    )""",
    re.VERBOSE,
)
_TORCH: Final = ("version", "cuda", "hip", "cudnn", "nccl", "threads", "interop_threads")
"""Facts of torch that count for a benchmark that uses it, whatever others of its run use."""
_TOLERATED: Final = re.compile(r"gpu\.devices\.\d+\.locked_clock_mhz")
"""Judged by what a machine did at that moment, so that it may be unknown at another."""
_INFORMATIVE: Final = re.compile(
    r"""platform\.(release|libc)|cpu\.(physical|logical)_cores|memory_bytes|hostname
    |packages\..*|git\.(commit|branch|dirty)
    # Except what a launcher sets anew for each launch.
    |environment_variables\.(?!
        (CI|(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCH_NCCL_ASYNC_ERROR_HANDLING)$
        |(TORCHELASTIC|SLURM)_
    ).*""",
    re.VERBOSE,
)
_NAMES: Final = re.compile(r"hostname|memory_bytes|git\.branch")
"""Facts that differ between equal machines and equal code."""
_MINOR: Final = re.compile(r"(\d+\.\d+)\..*")


def machine_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Known facts by dot key that make two runs incomparable if they differ.

    Hardware, configured clocks, driver, versions of libraries and of the measuring method, and
    variables for threads, precision and memory; neither the code under test, which a comparison is
    about, nor names of machines, nor Python's patch level.
    """
    facts = {
        key: fact
        for key, fact in flat(environment).items()
        # An empty variable, such as LD_PRELOAD, is as good as none.
        if fact not in (None, "") and _MACHINE.fullmatch(key)
    }
    if "python.version" in facts:
        facts["python.version"] = _MINOR.sub(r"\1", str(facts["python.version"]))
    return facts


def torch_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The `facts` of torch, by dot key, that make two benchmarks that use it incomparable."""
    return {f"torch.{name}": facts[name] for name in _TORCH if facts[name] is not None}


def informative_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Informative facts by dot key that do not affect comparability."""
    return {
        key: fact
        for key, fact in flat(environment).items()
        if fact is not None and _INFORMATIVE.fullmatch(key) and not _MACHINE.fullmatch(key)
    }


def resume_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Facts by dot key that a resumed run must share: all but the names of equal things."""
    facts = {**machine_facts(environment), **informative_facts(environment)}
    return {key: fact for key, fact in facts.items() if not _NAMES.fullmatch(key)}


def tolerates_unknown(key: str) -> bool:
    """Whether an unknown value of the fact `key` differs from no other."""
    return _TOLERATED.fullmatch(key) is not None


def fingerprint_of(machine: Mapping[str, Any], settings: Mapping[str, Any], timer: str) -> str:
    """Hash of machine facts, settings and clock: equal if comparable."""
    known_anywhere = {key: fact for key, fact in machine.items() if not tolerates_unknown(key)}
    text = json.dumps([known_anywhere, dict(settings), timer], sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:24]
