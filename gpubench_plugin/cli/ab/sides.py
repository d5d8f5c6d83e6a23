"""The two sides of a comparison: code, folder, Python interpreter."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from gpubench_plugin.cli.ab.git import Repository
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted, listed, short_commit
from gpubench_plugin.environment.code import changes, digests

SideName = Literal["base", "head"]
SIDES: Final[tuple[SideName, SideName]] = ("base", "head")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A side as requested: a `commit`, or a `folder` as it is, with the commit it is based on.

    `label` is its name in reports; `code` are the hashes of the folder's Python files by name.
    """

    name: SideName
    label: str
    python: str
    commit: str | None = None
    folder: Path | None = None
    repository: Repository | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    def identity(self) -> dict[str, str | None]:
        """What must be the same to resume: commit, uncommitted changes and Python."""
        identity = {"commit": self.commit, "python": self.python}
        if self.folder is None:
            return identity
        code = sha256(json.dumps(self.code).encode()).hexdigest()[:16]
        return {"folder": str(self.folder), "code": code, **identity}

    def require_unchanged(self) -> None:
        """Refuse a folder whose code has changed; raises UsageProblem, which names the files."""
        if self.folder is None:
            return
        remedy = ""
        if self.commit != (self.repository and self.repository.head()):
            remedy = "another commit is checked out; start a new comparison"
        if files := changes(self.folder, self.code):
            remedy = (
                f"{listed(files)}. If the benchmarks write these files, let them write elsewhere; "
                "then start again"
            )
        if remedy:
            raise UsageProblem(
                f"the files of the {self.name} in {self.folder} changed after the comparison "
                f"started, so later launches would measure different code: {remedy}"
            )


@dataclass(frozen=True, kw_only=True)
class Side:
    """A side that is ready to launch.

    `tree` is the top of its code and `folder`, in or below it, where pytest runs.
    """

    source: Source
    tree: Path
    folder: Path

    @property
    def name(self) -> SideName:
        """Base or head."""
        return self.source.name

    def import_roots(self) -> list[Path]:
        """The folders of `tree` from which its packages are imported."""
        return [root for root in (self.tree / "src", self.tree) if root.is_dir()]


def resolve_source(
    name: SideName,
    text: str | None,
    python: str | None,
    *,
    cwd: Path,
    repository: Repository | None,
) -> Source:
    """Resolve ``--base`` or ``--head`` to a source.

    `text` is a ref or a folder, None the working tree around `cwd` in `repository`; `python` an
    interpreter by path or name, None the running one.

    Raises:
        UsageProblem: it does not exist.
    """
    option = f"--{name}"
    interpreter = _interpreter(f"{option}-python", python, cwd)
    if text is None:
        tree = cwd if repository is None else repository.top
        return _folder(name, "working tree", tree, interpreter, repository)
    if not text:
        raise UsageProblem(f"{option}: empty; allowed: a commit, branch or tag, or a folder")
    folder = cwd / Path(text).expanduser()
    looks_like_folder = text.startswith((".", "/", "~"))
    commit = None if looks_like_folder or repository is None else repository.commit(text)
    if commit is None and folder.is_dir():
        folder = folder.resolve()
        return _folder(name, text, folder, interpreter, Repository.containing(folder))
    if repository is None:
        raise UsageProblem(
            f"{option}: {text!r} is not a folder, and {cwd} is not in a git repository, where it "
            "could be a commit, branch or tag"
        )
    if commit is None and looks_like_folder:
        raise UsageProblem(f"{option}: {text!r}: no such folder")
    commit = commit or repository.resolve_commit(text, option)
    return Source(
        name=name,
        label=f"{text} ({short_commit(commit)})" if not commit.startswith(text) else text,
        python=interpreter,
        commit=commit,
        repository=repository,
    )


def prepare_side(source: Source, *, tree: Path, subdirectory: Path) -> Side:
    """Attach a checked-out `tree` to `source`; `subdirectory` is the user's relative subdirectory.

    Raises:
        UsageProblem: a checked out tree has no such folder.
    """
    folder = tree / subdirectory
    if not folder.is_dir():
        if source.folder is None:
            raise UsageProblem(
                f"--{source.name}: {source.label} has no folder {subdirectory} to run pytest in"
            )
        folder = tree
    return Side(source=source, tree=tree, folder=folder)


def _folder(
    name: SideName, label: str, folder: Path, python: str, repository: Repository | None
) -> Source:
    """Use a folder as it is; the label of a working tree counts its uncommitted changes."""
    tree = repository if repository is not None and repository.top == folder else None
    if tree is not None and (changed := tree.changed_files()):
        label = f"{label} ({counted(changed, 'changed file')})"
    return Source(
        name=name,
        label=label,
        python=python,
        commit=None if tree is None else tree.head(),
        folder=folder,
        repository=tree,
        code=digests(folder),
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
