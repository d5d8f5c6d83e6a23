"""The git repository whose states are compared: refs, changes, and trees checked out elsewhere."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from gpubench_plugin.ab.outputs import own_output
from gpubench_plugin.errors import ResultsError, UsageProblem, nearest
from gpubench_plugin.results.code import fingerprint

_PATIENCE_S: Final = 600.0
"""The checkout of a huge repository on a slow disk takes minutes."""

OF_HOOKS: Final = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
    )
)
"""Variables by which git tells a hook its repository; they would lead every git there."""


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
            sums.update(fingerprint(self.top / name))
        return sums.hexdigest()[:16]

    def check_out(self, commit: str, folder: Path) -> None:
        """A tree of `commit` in `folder`, with no branch; the user's hooks do not run.

        Raises:
            ResultsError: git did not do it, and why.
        """
        _must(
            self.top,
            *("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false"),
            *("worktree", "add", "--detach", "--force", os.fspath(folder), commit),
        )

    def checked_out(self) -> list[Path]:
        """The folders of all trees that are registered, the user's own first."""
        lines = (_git(self.top, "worktree", "list", "--porcelain") or "").splitlines()
        return [Path(line[9:]) for line in lines if line.startswith("worktree ")]

    def remove(self, folder: Path) -> None:
        """Remove the tree in `folder`, whatever its state, and its registration."""
        # Twice: a checkout that was interrupted leaves a locked one.
        _git(self.top, "worktree", "remove", "--force", "--force", os.fspath(folder))

    def forget(self, folder: Path) -> None:
        """Drop the registration of the tree in `folder`, which is gone."""
        if folder in self.checked_out():
            _git(self.top, "worktree", "unlock", os.fspath(folder))
            _git(self.top, "worktree", "prune")

    def missing_in(self, tree: Path) -> list[str]:
        """What a checked out `tree` lacks, in words: git fills in neither of these."""
        said = []
        if (tree / ".gitmodules").is_file():
            said.append("submodules are empty in a checked out tree")
        listed = _git(tree, "grep", "-l", "filter=lfs", "--", "*.gitattributes", ".gitattributes")
        if listed:
            said.append("files in Git LFS may be pointers in a checked out tree")
        return said


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        return _run(folder, *arguments)
    except (OSError, subprocess.SubprocessError):
        return None


def _must(folder: Path, *arguments: str) -> None:
    try:
        _run(folder, *arguments)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise ResultsError(f"git {' '.join(arguments)}: {said[-1]}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ResultsError(f"git {' '.join(arguments)}: {error}") from error


def _run(folder: Path, *arguments: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name not in OF_HOOKS}
    done = subprocess.run(
        ["git", "-C", os.fspath(folder), *arguments],
        env={**environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PATIENCE_S,
        check=True,
        start_new_session=True,  # a Ctrl-C must not tear it; whoever called cleans up
    )
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
