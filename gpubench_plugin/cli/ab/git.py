"""The git repository whose states are compared: refs, changes, and trees checked out elsewhere."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from gpubench_plugin.environment import file_fingerprint, run_git
from gpubench_plugin.errors import ResultsError, UsageProblem, nearest

STREAMS: Final = (1, 2)
"""Standard output and error. What goes through a pipe, to ``tee`` say, cannot be followed."""


def own_output(file: Path) -> bool:
    """Whether this process's standard output or error is redirected into `file`.

    Such a file grows while the process measures.
    """
    try:
        found = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and any(_is(found, stream) for stream in STREAMS)


def _is(found: os.stat_result, stream: int) -> bool:
    with suppress(OSError):  # a stream that is closed
        return os.path.samestat(found, os.fstat(stream))
    return False


_TIMEOUT_S: Final = 600.0
"""The checkout of a huge repository on a slow disk takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The repository with its working tree at `top`; nothing here changes that tree."""

    top: Path

    @classmethod
    def around(cls, folder: Path) -> Repository | None:
        """The repository that `folder` is in; None without one, or without git."""
        found = _git(folder, "rev-parse", "--show-toplevel")
        return None if found is None else cls(top=Path(found))

    def commit(self, ref: str) -> str | None:
        """The commit that `ref` names, or None."""
        commit = f"{ref}^{{commit}}"
        return _git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", commit)

    def required_commit(self, ref: str, option: str) -> str:
        """The commit that `ref` names.

        Raises:
            UsageProblem: there is none; the message says what is near it.
        """
        commit = self.commit(ref)
        if commit is not None:
            return commit
        hint = nearest(ref, self._names())
        shallow = _git(self.top, "rev-parse", "--is-shallow-repository") == "true"
        more = "; this clone is shallow: fetch what is missing first" if shallow else ""
        raise UsageProblem(
            f"{option}: {ref!r} is neither a folder nor a commit, branch or tag of "
            f"{self.top}{hint}{more}"
        )

    def _names(self) -> list[str]:
        kinds = ("refs/heads", "refs/tags", "refs/remotes")
        return (_git(self.top, "for-each-ref", "--format=%(refname:short)", *kinds) or "").split()

    def head(self) -> str | None:
        """The commit the working tree is based on; None before the first."""
        return self.commit("HEAD")

    def changed_files(self) -> list[str]:
        """The files that differ from the last commit, unknown ones included, ignored ones not.

        An unknown one into which our own output goes is none: it is no code, and grows by itself.
        """
        listed = _git(self.top, "status", "--porcelain", "--untracked-files=all", "-z") or ""
        entries = iter(listed.split("\0"))
        files = []
        for entry in entries:
            if entry and not (entry.startswith("??") and own_output(self.top / entry[3:])):
                files.append(entry[3:])
            if entry[:1] in {"R", "C"}:
                next(entries, None)  # where a renamed file came from
        return files

    def digest(self) -> str:
        """What tells one set of :meth:`changed_files` from another: 16 hexadecimal digits."""
        against = "HEAD" if self.head() else "--cached"
        diff = _git(self.top, "diff", "--binary", "--no-ext-diff", "--no-textconv", against)
        sums = sha256((diff or "").encode("utf-8", "surrogateescape"))
        unknown = _git(self.top, "ls-files", "--others", "--exclude-standard", "-z") or ""
        for name in sorted(filter(None, unknown.split("\0"))):
            if own_output(self.top / name):
                continue
            sums.update(name.encode("utf-8", "surrogateescape"))
            sums.update(file_fingerprint(self.top / name))
        return sums.hexdigest()[:16]

    def common_folder(self) -> Path | None:
        """The folder that all its working trees share, where they are registered."""
        common = _git(self.top, "rev-parse", "--git-common-dir")
        return None if common is None else (self.top / common).resolve()

    def check_out(self, commit: str, folder: Path) -> None:
        """A tree of `commit` in the new `folder`, with no branch; the user's hooks do not run.

        git registers it under the folder's name. It is locked: a ``git worktree prune`` or
        ``git gc`` of another host or container, where the folder is not there, spares it.

        Raises:
            ResultsError: git did not do it, and why.
        """
        settings = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")
        command = (*settings, "worktree", "add", "--lock", "--detach", os.fspath(folder), commit)
        try:
            _run(self.top, *command)
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
            said = lines[-1] if lines else "no reason given"
            raise ResultsError(f"git {' '.join(command)}: {said}") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise ResultsError(f"git {' '.join(command)}: {error}") from error

    def missing_in(self, tree: Path) -> list[str]:
        """What a checked out `tree` lacks, in words: git fills in neither of these."""
        said = []
        if (tree / ".gitmodules").is_file():
            said.append("submodules are empty in a checked out tree")
        listed = _git(tree, "grep", "-l", "filter=lfs", "--", "*.gitattributes", ".gitattributes")
        if listed:
            said.append("files in Git LFS may be pointers in a checked out tree")
        return said


def unregister(common: Path, trees: Iterable[Path]) -> bool:
    """Remove `trees`, and no other, with their registrations in the repository `common`.

    A tree whose folder is gone already loses its registration all the same. Returns whether none
    of them is registered any more; False where git does not say.
    """
    registered = _registered(common)
    for tree in trees:
        if registered is not None and tree in registered:
            # Twice: ours are locked.
            _git(common, "worktree", "remove", "--force", "--force", os.fspath(tree))
    left = _registered(common)
    return left is not None and left.isdisjoint(trees)


def _registered(common: Path) -> frozenset[Path] | None:
    """The folders of all trees, the user's own among them; None where git does not say."""
    listed = _git(common, "worktree", "list", "--porcelain")
    if listed is None:
        return None
    lines = (line.partition(" ") for line in listed.split("\n"))
    return frozenset(Path(folder) for key, _, folder in lines if key == "worktree")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        return _run(folder, *arguments)
    except (OSError, subprocess.SubprocessError):
        return None


def _run(folder: Path, *arguments: str) -> str:
    output = run_git(folder, *arguments, timeout_s=_TIMEOUT_S)
    return output.decode("utf-8", "surrogateescape").rstrip("\n")
