"""What tells a process that it is a rank of a gang, and how to reach its controller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.launchers.output import GANG

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_TOKEN: Final = "GPUBENCH_GANG_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """The private folder of a gang, in which its socket is, and the word that opens it."""

    folder: Path
    token: str

    @property
    def socket(self) -> Path:
        """The controller's unix socket."""
        return self.folder / "controller"

    def stack(self, rank: int) -> Path:
        """The file into which `rank` writes where it is when it is asked."""
        return self.folder / f"stack-{rank}"

    @property
    def flights(self) -> Path:
        """What the names of the files of NCCL's flight recorder begin with."""
        return self.folder / "flight-"

    @property
    def pipes(self) -> Path:
        """What the names of the pipes begin with on which a rank is asked for its flight."""
        return self.folder / "pipe-"

    def to_environment(self) -> dict[str, str]:
        """The variables that carry the invitation to a rank."""
        return {GANG: str(self.folder), _TOKEN: self.token}

    @classmethod
    def accepted(cls, environment: MutableMapping[str, str]) -> Invitation:
        """The invitation in the `environment`, taken out of it: it is not for others."""
        return cls(folder=Path(environment.pop(GANG)), token=environment.pop(_TOKEN, ""))
