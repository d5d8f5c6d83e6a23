"""The folder that the processes of a gang share: for this user only, and not left behind."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Final

from gpubench_plugin.errors import GangError, ResultsError
from gpubench_plugin.launchers.scratch import ScratchFolder, abandoned

_LOGGER: Final = logging.getLogger("gpubench")
_PREFIX: Final = "gpubench-gang-"
_LONGEST_PARENT: Final = 64
"""Bytes; the path of a unix socket has room for 104 (BSD) or 108 (Linux), see unix(7)."""


class PrivateFolder:
    """A new folder in the folder for temporary files, or in ``/tmp`` where that path is too long.

    Those that killed sessions left there are removed, which the run's log says.

    Raises:
        GangError: it cannot be made.
    """

    def __init__(self) -> None:
        parent = Path(os.path.realpath(tempfile.gettempdir()))
        if len(os.fsencode(parent)) > _LONGEST_PARENT:
            parent = Path("/tmp")
        for left in abandoned(parent, _PREFIX):
            if left.remove():
                _LOGGER.info("removed %s, which a killed session had left", left.path)
        try:
            self._folder = ScratchFolder.make(parent, _PREFIX)
        except (OSError, ResultsError) as error:
            raise GangError(f"no folder for the gang's socket could be made: {error}") from error
        self.path = self._folder.path

    def remove(self) -> None:
        """Remove it with all that is in it; a second time does nothing."""
        self._folder.remove()
