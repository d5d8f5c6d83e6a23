"""The git repository under comparison: refs, changes, and worktrees."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpubench_plugin.core.errors import ResultsError, UsageProblem, suggest
from gpubench_plugin.environment.code import run_git

# Long enough for the checkout of a huge repository on a slow disk.
_TIMEOUT_S: Final = 600.0


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
        """Resolve `ref` to a commit, or None."""
        commit = f"{ref}^{{commit}}"
        return _git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", commit)

    def unknown_ref(self, ref: str, option: str) -> UsageProblem:
        """Error for a `ref` that is no commit, with the nearest name."""
        names = (_git(self.top, "for-each-ref", "--format=%(refname:short)") or "").split()
        hint = suggest(ref, names)
        if _git(self.top, "rev-parse", "--is-shallow-repository") == "true":
            hint += "; this clone is shallow: fetch the missing history first"
        return UsageProblem(
            f"{option}: {ref!r} is neither a folder nor a commit, branch or tag of {self.top}{hint}"
        )

    def head(self) -> str | None:
        """The commit that the worktree is based on; None before the first one."""
        return self.commit("HEAD")

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
            _run(self.top, *command)
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or b"").decode("utf-8", "replace").strip()
            reason = said.rpartition("\n")[2] or error
            raise ResultsError(f"git {' '.join(command)}: {reason}") from error

    def incomplete_parts(self, tree: Path) -> list[str]:
        """Describe what the worktree `tree` lacks: submodules and LFS files."""
        warnings = []
        if (tree / ".gitmodules").is_file():
            warnings.append("submodules are not initialised in a worktree")
        if _git(tree, "grep", "-l", "filter=lfs", "--", "*.gitattributes", ".gitattributes"):
            warnings.append("Git LFS files may be pointers in a worktree")
        return warnings


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


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        return _run(folder, *arguments)
    except (OSError, subprocess.SubprocessError):
        return None


def _run(folder: Path, *arguments: str) -> str:
    output = run_git(folder, *arguments, timeout_s=_TIMEOUT_S)
    return output.decode("utf-8", "surrogateescape").rstrip("\n")
