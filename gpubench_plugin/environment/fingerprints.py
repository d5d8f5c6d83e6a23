"""Fingerprints: the facts of ``system.json`` that make numbers comparable, and their differences.

:func:`machine_facts` are those by which two runs are compared, :func:`fingerprint` those by which a
run may be resumed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

ABSENT = object()
"""The value of a key that one of two records lacks."""


def flat(facts: object, prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by dot key, of their lists by number: ``gpu.devices.0.name``.

    A list of plain values stays one value.
    """
    found: dict[str, Any] = {}
    _flatten(facts, prefix, found)
    return found


def _flatten(facts: object, prefix: str, found: dict[str, Any]) -> None:
    if facts is None or isinstance(facts, str | int | float):  # most are; others cost more to tell
        found[prefix] = facts
        return
    if isinstance(facts, list) and any(isinstance(fact, Mapping) for fact in facts):
        facts = {str(number): fact for number, fact in enumerate(facts)}
    if isinstance(facts, Mapping):
        for name, fact in facts.items():
            _flatten(fact, f"{prefix}.{name}" if prefix else str(name), found)
    else:
        found[prefix] = facts


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Of two flat records, each differing key with both its values, in the order of the keys."""
    pairs = {
        key: (before.get(key, ABSENT), now.get(key, ABSENT)) for key in sorted({*before, *now})
    }
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def described(pair: tuple[Any, Any]) -> str:
    """Both values in words."""
    before, now = ("absent" if value is ABSENT else json.dumps(value) for value in pair)
    return f"{before} in the run, {now} now"


_MACHINE: Final = re.compile(
    r"""platform\.(system|machine)
    |python\.(implementation|version|optimize|dev_mode|malloc|tracemalloc|debug_build)
    |cpu\.(model|usable_cores|quota_cores|governor|boost)
    |gpu\.driver|gpu\.topology.*|gpu\.devices\.\d+\.(?!uuid).*
    |devices\..*
    |torch\.(version|cuda|hip|cudnn|nccl|threads|interop_threads)
    |packages\.(triton|numpy|nvidia-\w+(-\w+)*)
    |gpubench\.measuring_method
    |environment_variables\.(
        (OMP|GOMP|MKL|KMP|OPENBLAS|BLIS|VECLIB|NUMEXPR|CUBLAS|MALLOC)_(?!HOME$|ROOT$|DIR$|PATH$)\w+
        |LD_PRELOAD|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32\w*
        # Not where a job has its files, nor which build an image has: torch.version tells enough.
        |PYTORCH_(?!HOME$|BUILD_\w+$|VERSION$|\w+_(VERSION|CACHE|PATH|DIR)$)\w+
    )""",
    re.VERBOSE,
)
_LATELY: Final = re.compile(
    r"""gpubench\.measuring_method|cpu\.(governor|boost)
    |gpu\.devices\.\d+\.applications_clocks_mhz""",
    re.VERBOSE,
)
_NOT_IN_FINGERPRINTS: Final = re.compile(
    rf"{_LATELY.pattern}|environment_variables\..*", re.VERBOSE
)
"""Facts of the machine that were not, or not compared, when the first registries were filled."""
_TOLD: Final = re.compile(
    r"""platform\.(release|libc)|cpu\.(physical|logical)_cores|memory_bytes|hostname
    |torch\.git_commit|packages\..*|git\.(commit|branch|dirty|changes)
    # Not what a launcher sets anew for each start.
    |environment_variables\.(?!MASTER_PORT$|TORCHELASTIC_(RUN_ID|ERROR_FILE)$|SLURM_JOB_ID$).*""",
    re.VERBOSE,
)
_MINOR: Final = re.compile(r"(\d+\.\d+)\..*")


def machine_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The facts by dot key that make two runs incomparable where they differ; unknown left out.

    They are hardware, its clocks as far as somebody has set them, driver, the versions that compute
    and measure, and the variables that set threads, precision and memory of the libraries. The code
    under test is not among them, since it is what a comparison is about; nor are names of machines
    that are alike otherwise. Of Python's version the patch level does not count. Of what is
    :func:`recorded_lately` unknown facts are not left out: that tells them from unrecorded ones.
    """
    facts = {
        key: fact
        for key, fact in flat(environment).items()
        # An empty variable, LD_PRELOAD for example, is as good as none.
        if _MACHINE.fullmatch(key) and (fact not in (None, "") or recorded_lately(key))
    }
    if "python.version" in facts:
        facts["python.version"] = _MINOR.sub(r"\1", str(facts["python.version"]))
    return facts


def recorded_lately(key: str) -> bool:
    """Whether records of earlier versions lack that fact, of which they therefore tell nothing."""
    return _LATELY.fullmatch(key) is not None


def told_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Other facts by dot key that are worth saying where they differ."""
    return {
        key: fact
        for key, fact in flat(environment).items()
        if fact is not None and _TOLD.fullmatch(key) and not _MACHINE.fullmatch(key)
    }


def fingerprint_of(machine: Mapping[str, Any], settings: Mapping[str, Any], timer: str) -> str:
    """One text for a machine, a benchmark's settings and its clock: equal if comparable.

    It is the same as the one that earlier versions have stored: facts that they did not compare are
    no part of it, so that of equal ones some are not comparable.
    """
    known = {key: fact for key, fact in machine.items() if not _NOT_IN_FINGERPRINTS.fullmatch(key)}
    text = json.dumps([known, dict(settings), timer], sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:24]


_FACTS: Final = (
    "platform",
    "python",
    "cpu",
    "gpu",
    "devices",
    "torch",
    "packages",
    "git",
    "environment_variables",
)
_LEFT_OUT: Final = re.compile(
    r"""gpu\.devices\.\d+\.uuid
    |git\.(branch|remote)
    |environment_variables\.(
        CI|(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)
        |(TORCHELASTIC|SLURM)_\w+|TORCH_NCCL_ASYNC_ERROR_HANDLING
    )""",
    re.VERBOSE,
)


def fingerprint(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The known facts of an `environment` by dot key that make its numbers comparable.

    Kept are the hardware, the software and the code that can change a number. Left out are the
    names of things that are alike otherwise (host, GPU, branch), what a launcher sets anew for each
    start, and what a project's own hook adds: it is unknown which of those facts stay.
    """
    facts = flat({name: environment.get(name) for name in _FACTS})
    return {
        key: fact
        for key, fact in facts.items()
        if fact is not None and not _LEFT_OUT.fullmatch(key)
    }
