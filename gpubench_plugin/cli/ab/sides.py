"""The two sides of a comparison: code, folder, Python interpreter."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from gpubench_plugin.cli.ab.git import Repository
from gpubench_plugin.compare.effective_limits import SideName
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted, listed, short_commit
from gpubench_plugin.environment.code import changes, digests, same_files


@dataclass(frozen=True, kw_only=True)
class Side:
    """A side of a comparison: a `commit` to check out, or a folder as it is, based on one.

    `label` is its name in reports; `code` are the hashes of a folder's Python files by name, None
    for a commit. `tree` is the top of its code and `folder`, in or below it, where pytest runs;
    those of a commit are unknown until it is :meth:`checked_out`.
    """

    name: SideName
    label: str
    python: str
    commit: str | None = None
    repository: Repository | None = None
    code: Mapping[str, str] | None = None
    tree: Path = Path()
    folder: Path = Path()

    def identity(self) -> dict[str, str | None]:
        """What must be the same to resume: commit, uncommitted changes and Python."""
        identity = {"commit": self.commit, "python": self.python}
        if self.code is None:
            return identity
        code = sha256(json.dumps(self.code).encode()).hexdigest()[:16]
        return {"folder": str(self.tree), "code": code, **identity}

    def refuse_same(self, other: Self) -> None:
        """Refuse an `other` side that would measure the same; raises UsageProblem.

        That is: by the same Python the same files, or those of one commit, which a working tree
        without changes has, too.
        """
        if None in (self.code, other.code):
            is_same = self._committed() is not None and self._committed() == other._committed()
        else:
            is_same = self.code == other.code and same_files(self.tree, other.tree)
        if is_same and self.python == other.python:
            raise UsageProblem(
                f"--{self.name} and --{other.name} are the same code and Python: {self.label} and "
                f"{other.label}; allowed: two that differ, or --same to measure one twice"
            )

    def _committed(self) -> str | None:
        """Hash by git of all files; None if they are not just those of a commit."""
        if self.repository is None or self.commit is None:
            return None
        is_changed = self.code is not None and self.repository.changed_files()
        return None if is_changed else self.repository.files_of(self.commit)

    def require_unchanged(self) -> None:
        """Refuse a folder whose code has changed; raises UsageProblem, which names the files."""
        if self.code is None:
            return
        remedy = ""
        if self.commit != (self.repository and self.repository.commit("HEAD")):
            remedy = "another commit is checked out; start a new comparison"
        if files := changes(self.tree, self.code):
            remedy = (
                f"{listed(files)}. If the benchmarks write these files, let them write elsewhere; "
                "then start again"
            )
        if remedy:
            raise UsageProblem(
                f"the files of the {self.name} in {self.tree} changed after the comparison "
                f"started, so later launches would measure different code: {remedy}"
            )

    def import_roots(self) -> list[Path]:
        """The folders of `tree` from which its packages are imported."""
        return [root for root in (self.tree / "src", self.tree) if root.is_dir()]

    def checked_out(self, tree: Path, subdirectory: Path) -> Self:
        """This side with its commit in the new folder `tree`; pytest runs in its `subdirectory`.

        A folder stays as it is. A commit without that subdirectory has no benchmarks there. Raises
        ResultsError where git fails, or OSError.
        """
        if self.code is not None or self.repository is None or self.commit is None:
            return self
        self.repository.check_out(self.commit, tree)
        folder = tree / subdirectory
        folder.mkdir(parents=True, exist_ok=True)
        return replace(self, tree=tree, folder=folder)


def resolve_side(
    name: SideName,
    text: str | None,
    python: str | None,
    *,
    cwd: Path,
    repository: Repository | None,
) -> Side:
    """Resolve ``--base`` or ``--head``.

    `text` is a ref or a folder, None the working tree around `cwd` in `repository`; `python` an
    interpreter by path or name, None the running one.

    Raises:
        UsageProblem: it does not exist.
    """
    option = f"--{name}"
    interpreter = _interpreter(f"{option}-python", python, cwd)
    subdirectory = Path() if repository is None else cwd.relative_to(repository.top)
    if text is None:
        tree = cwd if repository is None else repository.top
        return _folder(name, "working tree", tree, interpreter, subdirectory)
    if not text:
        raise UsageProblem(f"{option}: empty; allowed: a commit, branch or tag, or a folder")
    folder = cwd / Path(text).expanduser()
    looks_like_folder = text.startswith((".", "/", "~"))
    commit = None if looks_like_folder or repository is None else repository.commit(text)
    if commit is None and folder.is_dir():
        return _folder(name, text, folder.resolve(), interpreter, subdirectory)
    if looks_like_folder:
        raise UsageProblem(f"{option}: {text!r}: no such folder")
    if repository is None:
        raise UsageProblem(
            f"{option}: {text!r} is not a folder, and {cwd} is not in a git repository, where it "
            "could be a commit, branch or tag"
        )
    if commit is None:
        raise repository.unknown_ref(text, option)
    return Side(
        name=name,
        label=f"{text} ({short_commit(commit)})" if not commit.startswith(text) else text,
        python=interpreter,
        commit=commit,
        repository=repository,
    )


def _folder(name: SideName, label: str, tree: Path, python: str, subdirectory: Path) -> Side:
    """Use a folder as it is; the label of a working tree has its commit, or counts changes."""
    repository = Repository.containing(tree)
    if repository is not None and repository.top != tree:
        repository = None
    commit = None if repository is None else repository.commit("HEAD")
    changed = 0 if repository is None else repository.changed_files()
    state = counted(changed, "changed file") if changed else short_commit(commit)
    return Side(
        name=name,
        label=f"{label} ({state})" if state else label,
        python=python,
        commit=commit,
        repository=repository,
        code=digests(tree),
        tree=tree,
        folder=tree / subdirectory if (tree / subdirectory).is_dir() else tree,
    )


def _interpreter(option: str, text: str | None, cwd: Path) -> str:
    if text is None:
        return sys.executable
    # Not resolved: a virtual environment's python is a link, and finds it by the link's folder.
    candidate = os.path.normpath(cwd / Path(text).expanduser()) if os.sep in text else text
    resolved = shutil.which(candidate)
    if resolved is None:
        raise UsageProblem(f"{option}: {text!r} is not an executable")
    return resolved
