"""What killed processes leave below a folder of results that nobody would ever take up again.

- a run whose removal was cut off: it goes under the name ``.<run id>.gpubench-<8 hex>.removed``;
- the folder of a run that was killed before it had a journal: it is named like a run, has not
  changed for long, and holds nothing but what is written before the journal; nothing in it proves
  that, so it goes with whole runs only;
- temporary files of such as are written whole, see :mod:`gpubench_plugin.environment.whole_file`.

Only real folders and files of this user count: no link is followed.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment import whole_file
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results.artifacts import files_below
from gpubench_plugin.results.run_directory import PROBE, RunDirectory
from gpubench_plugin.results.run_id import RUN_ID
from gpubench_plugin.results.search import is_under_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDERS: Final = ("*", "*/*", "*/*/checkpoints/*")
"""Where files are written whole: baselines and the spool, runs and comparisons, checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A file or folder, and the bytes in it."""

    path: Path
    bytes: int


def leftovers(results_dir: Path, *, unbegun_before: datetime | None = None) -> Iterator[Leftover]:
    """Those below `results_dir`; one that goes meanwhile is passed over.

    Folders of runs without a journal are among them if they changed last before `unbegun_before`.
    """
    results = Path(os.path.realpath(results_dir))
    for pattern in _FOLDERS:
        for folder in results.glob(pattern):
            with suppress(OSError, ResultsError):
                if not _is_own_folder(folder):
                    continue
                if is_under_removal(folder) or _never_begun(folder, unbegun_before):
                    yield Leftover(
                        path=folder, bytes=sum(f.lstat().st_size for f in files_below(folder))
                    )
                    continue
                for file in whole_file.abandoned(folder):
                    yield Leftover(path=file, bytes=file.lstat().st_size)


def remove_leftover(path: Path) -> None:
    """Remove it; that somebody else does so, too, is no error.

    Raises:
        ResultsError: the operating system does not let it be removed.
    """
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ResultsError(f"{error.filename} was not removed: {error.strerror}") from error


def _is_own_folder(path: Path) -> bool:
    facts = path.lstat()
    is_own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    return is_own and os.path.realpath(path) == str(path)


def _never_begun(folder: Path, before: datetime | None) -> bool:
    if before is None or not RUN_ID.fullmatch(folder.name):
        return False
    run = RunDirectory(path=folder)
    known = {PROBE, run.config_resolved.name, run.system.name}
    return folder.lstat().st_mtime < before.timestamp() and all(
        path.is_file()
        and not path.is_symlink()
        and (path.name in known or whole_file.is_temporary(path.name))
        for path in folder.iterdir()
    )
