"""The git repository under comparison, and the temporary folder of its worktrees."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from gpubench_plugin.compare.effective_limits import SIDES, SideName
from gpubench_plugin.core.errors import ResultsError, UsageProblem, suggest
from gpubench_plugin.environment.code import ask_git, run_git
from gpubench_plugin.system import scratch
from gpubench_plugin.system.child_process import ChildError
from gpubench_plugin.system.signals import signals_ignored

# Long enough for the checkout of a huge repository on a slow disk.
_TIMEOUT_S: Final = 600.0
_git: Final = partial(ask_git, timeout_s=_TIMEOUT_S)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository with its worktree at `top`, which is never modified."""

    top: Path

    @classmethod
    def containing(cls, folder: Path) -> Repository | None:
        """The repository that contains `folder`; None outside of one, or without git."""
        top = _git(folder, "rev-parse", "--show-toplevel")
        return None if top is None else cls(top=Path(top))

    def commit(self, ref: str) -> str | None:
        """Resolve `ref` to a commit, or None; of ``HEAD`` the worktree's, None before the first."""
        commit = f"{ref}^{{commit}}"
        return _git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", commit)

    def files_of(self, commit: str) -> str | None:
        """Hash of all files of the `commit`."""
        return _git(self.top, "rev-parse", f"{commit}^{{tree}}")

    def unknown_ref(self, ref: str, option: str) -> UsageProblem:
        """Error for a `ref` that is no commit, with the nearest name."""
        names = (_git(self.top, "for-each-ref", "--format=%(refname:short)") or "").split()
        hint = suggest(ref, names)
        if _git(self.top, "rev-parse", "--is-shallow-repository") == "true":
            hint = "; a shallow clone: git fetch --unshallow, or fetch-depth: 0 of actions/checkout"
        return UsageProblem(
            f"{option}: {ref!r} is neither a folder nor a commit, branch or tag of {self.top}{hint}"
        )

    def changed_files(self) -> int:
        """Number of files that differ from the last commit, new ones among them."""
        output = _git(self.top, "status", "--porcelain", "--untracked-files=all") or ""
        return len(output.splitlines())

    def common_folder(self) -> Path | None:
        """The git directory shared by all worktrees, where they are registered."""
        path = _git(self.top, "rev-parse", "--git-common-dir")
        return None if path is None else (self.top / path).resolve()

    def check_out(self, commit: str, folder: Path) -> None:
        """Check out `commit` into the new `folder`, detached and without running hooks.

        git registers it under the folder's name, locked, so that ``git worktree prune`` or ``git
        gc`` on another host or container, where the folder is missing, spares it.

        Raises:
            ResultsError: git failed; the message has its reason.
        """
        settings = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")
        command = (*settings, "worktree", "add", "--lock", "--detach", os.fspath(folder), commit)
        try:
            run_git(self.top, *command, timeout_s=_TIMEOUT_S)
        except ChildError as error:
            raise ResultsError(f"git {' '.join(command)}: {error}") from error


def remove_worktrees(common: Path, trees: Iterable[Path]) -> bool:
    """Remove `trees` and their worktree registrations in the repository `common`.

    Also of trees whose folders are gone. Returns whether none of them is registered any more.
    """
    for tree in (_worktrees(common) or frozenset()) & {*trees}:
        # git takes --force twice for a locked worktree.
        _git(common, "worktree", "remove", "--force", "--force", os.fspath(tree))
    remaining = _worktrees(common)
    return remaining is not None and remaining.isdisjoint(trees)


def _worktrees(common: Path) -> frozenset[Path] | None:
    """Paths of all registered worktrees, including the user's; None if git fails."""
    output = _git(common, "worktree", "list", "--porcelain")
    if output is None:
        return None
    lines = (line.partition(" ") for line in output.split("\n"))
    return frozenset(Path(folder) for key, _, folder in lines if key == "worktree")


_PREFIX: Final = "gpubench-ab-"
_TREES: Final = "worktrees.json"  # the repository and the worktrees, for a later comparison


def tree_in(workspace: Path, side: SideName) -> Path:
    """Path of that side's worktree.

    git registers it under the last part of its path: with the name of the workspace, so that hosts
    or containers sharing a repository do not collide.
    """
    return workspace / f"{side}-{workspace.name}"


@contextmanager
def temporary_workspace(
    repository: Repository | None, report: Callable[[str], object] = lambda _: None
) -> Iterator[Path]:
    """Create a private folder outside the user's tree, and remove it at the end.

    Those of killed comparisons are removed, too. Raises OSError.
    """
    parent = Path(tempfile.gettempdir())
    for abandoned in scratch.leftovers(parent, _PREFIX):
        if _remove(abandoned):
            report(f"removed {abandoned.path}, left over by a killed comparison")
    common = None if repository is None else repository.common_folder()
    folder = scratch.make(parent, _PREFIX)
    if common is not None:
        trees = [str(tree_in(folder.path, side)) for side in SIDES]
        facts = {"repository": str(common), "trees": trees}
        (folder.path / _TREES).write_text(json.dumps(facts), encoding="utf-8")
    try:
        yield folder.path
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
