"""Temporary workspace of a comparison: worktrees, byte code, caches; removed at the end."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpubench_plugin.cli.ab.git import Repository, remove_worktrees
from gpubench_plugin.cli.ab.sides import SIDES
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.environment import scratch
from gpubench_plugin.environment.signals import signals_ignored

_PREFIX: Final = "gpubench-ab-"
_TREES: Final = "worktrees.json"  # the repository and the worktrees, for a later comparison


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A private folder outside the user's tree.

    git registers a worktree under the last part of its path, which contains the `id`, so that hosts
    or containers sharing a repository do not collide.
    """

    path: Path
    id: str = field(default_factory=lambda: secrets.token_hex(6))

    def tree(self, name: str) -> Path:
        """Path of that side's worktree."""
        return self.path / f"{name}-{self.id}"


@contextmanager
def temporary_workspace(
    repository: Repository | None, report: Callable[[str], object] = lambda _: None
) -> Iterator[Workspace]:
    """Create a workspace, remove it at the end, and remove those of killed comparisons.

    Raises:
        ResultsError: the temporary folder cannot be written.
    """
    parent = Path(tempfile.gettempdir())
    for abandoned in scratch.leftovers(parent, _PREFIX):
        if _remove(abandoned):
            report(f"removed {abandoned.path}, left over by a killed comparison")
    common = None if repository is None else repository.common_folder()
    try:
        folder = scratch.make(parent, _PREFIX)
        space = Workspace(path=folder.path)
        if common is not None:
            facts = {"repository": str(common), "trees": [str(space.tree(side)) for side in SIDES]}
            (folder.path / _TREES).write_text(json.dumps(facts), encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot create a temporary folder: {error.strerror}") from error
    try:
        yield space
    finally:
        with signals_ignored():
            _remove(folder)


def _remove(folder: scratch.ScratchFolder) -> bool:
    """Remove a workspace, unless git still lists its worktrees."""
    with suppress(FileNotFoundError, ValueError):  # without a repository, or killed while writing
        facts = json.loads((folder.path / _TREES).read_text(encoding="utf-8"))
        trees = [*map(Path, facts["trees"])]
        for tree in trees:
            shutil.rmtree(tree, ignore_errors=True)
        if not remove_worktrees(Path(facts["repository"]), trees):
            folder.release()
            return False
    return folder.remove()
