"""Which facts of ``system.json`` make two measurements comparable.

Kept are the hardware, the software and the code that can change a number. Left out are the names
of things that are alike otherwise (host, GPU, branch), what a launcher sets anew for each start,
and what a project's own hook adds: nobody knows which of those facts stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment.differences import flat

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """The known facts of an `environment` by dot key that make its numbers comparable."""
    facts = flat({name: environment.get(name) for name in _FACTS})
    return {
        key: fact
        for key, fact in facts.items()
        if fact is not None and not _LEFT_OUT.fullmatch(key)
    }
