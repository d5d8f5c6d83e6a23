"""Which facts of ``system.json`` must be equal for numbers to be comparable; which are only told.

Hardware, driver and the versions that compute must be; the code under test need not, since it is
what a comparison is about. Names of machines that are alike otherwise are neither.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment.differences import flat

if TYPE_CHECKING:
    from collections.abc import Mapping

_MACHINE: Final = re.compile(
    r"""platform\.(system|machine)
    |python\.(implementation|version|optimize|dev_mode|malloc|tracemalloc|debug_build)
    |cpu\.(model|usable_cores|quota_cores)
    |gpu\.driver|gpu\.topology.*|gpu\.devices\.\d+\.(?!uuid).*
    |devices\..*
    |torch\.(version|cuda|hip|cudnn|nccl|threads|interop_threads)
    |packages\.(triton|numpy|nvidia-\w+(-\w+)*)""",
    re.VERBOSE,
)
_TOLD: Final = re.compile(
    r"""platform\.(release|libc)|cpu\.(physical|logical)_cores|memory_bytes|hostname
    |torch\.git_commit|packages\..*|git\.(commit|branch|dirty|changes)|environment_variables\..*""",
    re.VERBOSE,
)
_MINOR: Final = re.compile(r"(\d+\.\d+)\..*")


def machine_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The facts by dot key that make two runs incomparable where they differ; unknown left out.

    Of Python's version the patch level does not count.
    """
    facts = _chosen(environment, _MACHINE)
    if "python.version" in facts:
        facts["python.version"] = _MINOR.sub(r"\1", str(facts["python.version"]))
    return facts


def told_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Other facts by dot key that are worth saying where they differ."""
    machine = _chosen(environment, _MACHINE)
    return {k: v for k, v in _chosen(environment, _TOLD).items() if k not in machine}


def fingerprint_of(machine: Mapping[str, Any], settings: Mapping[str, Any], timer: str) -> str:
    """One text for a machine, a benchmark's settings and its clock: equal if comparable."""
    text = json.dumps([dict(machine), dict(settings), timer], sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:24]


def _chosen(environment: Mapping[str, Any], pattern: re.Pattern[str]) -> dict[str, Any]:
    facts = flat(environment)
    return {k: v for k, v in facts.items() if v is not None and pattern.fullmatch(k)}
