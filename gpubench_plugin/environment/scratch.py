"""Temporary folders with a token file, so that those of killed processes can be removed.

A new folder, readable by its user only, gets a token with its path and the process that created
it. The folder of another process is removed only if all of this holds, whatever its name:

- it is a folder, no link, directly in the folder for temporary files, has mode 0700 and belongs to
  this user;
- its token names this path, so that it was not copied or moved;
- the process that created it is certainly gone, see
  :mod:`gpubench_plugin.environment.process_identity`;
- no process has it as its working directory.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from gpubench_plugin.core.errors import GangError, GpubenchError, ResultsError
from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.environment.process_identity import ProcessIdentity

TOKEN: Final = "gpubench-token.json"
_FORMAT: Final = stored.Format(kind="token", newest=1, limit=1 << 16)


@dataclass(frozen=True, kw_only=True)
class ScratchFolder:
    """A temporary folder at `path`; `facts` are extra data in its token."""

    path: Path
    facts: Mapping[str, Any]

    @classmethod
    def make(cls, parent: Path, prefix: str, facts: Mapping[str, Any] = {}) -> Self:
        """Create a folder in `parent` whose name starts with `prefix`.

        Raises:
            OSError, ResultsError: the folder or its token cannot be written; nothing is left.
        """
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=os.path.realpath(parent)))  # mode 0700
        try:
            owner = ProcessIdentity.current()
            token = {
                "schema_version": _FORMAT.newest,
                "folder": str(path),
                "owner": None if owner is None else asdict(owner),
                "facts": facts,
            }
            json_files.write_json(path / TOKEN, token)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path=path, facts=facts)

    def clear(self) -> None:
        """Remove everything in it except the token."""
        with suppress(OSError):
            for entry in list(os.scandir(self.path)):
                if entry.name == TOKEN:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    Path(entry.path).unlink(missing_ok=True)

    def remove(self) -> bool:
        """Remove the folder; idempotent; returns whether it is gone.

        The token goes last, so that a later session completes an interrupted removal.
        """
        self.clear()
        with suppress(OSError):
            if [entry.name for entry in self.path.iterdir()] == [TOKEN]:
                (self.path / TOKEN).unlink()
                self.path.rmdir()
        return not self.path.exists()


def leftovers(parent: Path, prefix: str) -> list[ScratchFolder]:
    """Folders in `parent` with that prefix whose creators are dead."""
    try:
        paths = sorted(Path(os.path.realpath(parent)).iterdir())
    except OSError:
        return []
    candidates = (_abandoned(path) for path in paths if path.name.startswith(prefix))
    return [folder for folder in candidates if folder is not None]


def _abandoned(path: Path) -> ScratchFolder | None:
    """The folder at `path` if its creator is dead."""
    try:
        if not _is_private(path) or (path / TOKEN).is_symlink():
            return None
        token = _FORMAT.load(path / TOKEN)
        if token["folder"] != str(path):
            return None
        facts, owner = dict(token["facts"]), ProcessIdentity.from_json(token["owner"])
    except (OSError, GpubenchError, KeyError, TypeError, ValueError):
        return None
    if not owner.is_gone() or _is_in_use(path):
        return None
    return ScratchFolder(path=path, facts=facts)


def _is_private(path: Path) -> bool:
    """Whether `path` is a folder of this user with mode 0700, and no link."""
    status = path.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return is_own and status.st_mode & 0o777 == 0o700


def _is_in_use(path: Path) -> bool:
    """Whether any process has `path` as its working directory."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if link.readlink().is_relative_to(path):
                return True
    return False


_LOGGER: Final = logging.getLogger("gpubench")
_PREFIX: Final = "gpubench-gang-"
_MAX_PARENT_BYTES: Final = 64
"""The path of a unix socket has at most 104 (BSD) or 108 bytes (Linux), see unix(7)."""


def private_folder() -> ScratchFolder:
    """Private folder for the processes of a gang, in the folder for temporary files.

    It is in ``/tmp`` if that path is too long. Removes and logs the folders of killed sessions.

    Raises:
        GangError: it cannot be created.
    """
    parent = Path(os.path.realpath(tempfile.gettempdir()))
    if len(os.fsencode(parent)) > _MAX_PARENT_BYTES:
        parent = Path("/tmp")
    for leftover in leftovers(parent, _PREFIX):
        if leftover.remove():
            _LOGGER.info("removed %s, left over by a killed session", leftover.path)
    try:
        return ScratchFolder.make(parent, _PREFIX)
    except (OSError, ResultsError) as error:
        raise GangError(f"cannot create a folder for the gang's socket: {error}") from error
