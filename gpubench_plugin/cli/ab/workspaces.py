"""The temporary folder of a comparison: trees checked out, byte code, caches; gone at the end."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.cli.ab.git import Repository, unregister
from gpubench_plugin.cli.ab.sides import SIDES
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.launchers import ScratchFolder, abandoned, unheard

_PREFIX: Final = "gpubench-ab-"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A folder of this process alone, outside of the user's tree.

    git registers a tree under the last part of its path: `id`, which is part of it, keeps apart
    those of several hosts or containers that work on one repository.
    """

    path: Path
    id: str = field(default_factory=lambda: secrets.token_hex(6))

    def tree(self, name: str) -> Path:
        """Where the tree of that side is checked out."""
        return self.path / f"{name}-{self.id}"

    @property
    def byte_code(self) -> Path:
        """Where Python keeps what it compiled, of both sides: by the path of each source."""
        return self.path / "pycache"

    @property
    def storage(self) -> Path:
        """Where pytest-benchmark makes a folder for what it is asked to keep."""
        return self.path / "benchmarks"

    def cache(self, name: str) -> Path:
        """Where pytest keeps its cache of that side."""
        return self.path / f"pytest-cache-{name}"


@contextmanager
def workspace(
    repository: Repository | None, say: Callable[[str], object] = lambda _: None
) -> Iterator[Workspace]:
    """A new workspace, removed in the end; what killed comparisons left goes first, and is said.

    Raises:
        ResultsError: the temporary folder cannot be written.
    """
    for left in abandoned(Path(tempfile.gettempdir()), _PREFIX):
        if _remove(left):
            say(f"removed {left.path}, which a comparison that was killed had left")
    own = secrets.token_hex(6)
    common = None if repository is None else repository.common_folder()
    # Where git will list which trees of this workspace.
    trees = [f"{side}-{own}" for side in SIDES]
    facts = {} if common is None else {"repository": str(common), "trees": trees}
    try:
        folder = ScratchFolder.make(Path(tempfile.gettempdir()), _PREFIX, facts=facts)
    except OSError as error:
        raise ResultsError(f"no temporary folder: {error.strerror}") from error
    try:
        yield Workspace(path=folder.path, id=own)
    finally:
        with unheard():
            _remove(folder)


def _remove(folder: ScratchFolder) -> bool:
    """Remove a workspace of ours, whole; while git still lists its trees, its token stays."""
    folder.clear()
    return _unregistered(folder.path, folder.facts) and folder.remove()


def _unregistered(path: Path, facts: Mapping[str, Any]) -> bool:
    names, repository = facts.get("trees"), facts.get("repository")
    if not isinstance(names, list) or not isinstance(repository, str):
        return True
    trees = [path / Path(str(name)).name for name in names]
    return unregister(Path(repository), trees)
