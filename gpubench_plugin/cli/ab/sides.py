"""The two sides of a comparison: code, folder, Python interpreter."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from gpubench_plugin.cli.ab.git import Repository, receives_own_output
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.words import counted, listed, short_commit
from gpubench_plugin.environment.code import file_fingerprint

SideName = Literal["base", "head"]
SIDES: Final[tuple[SideName, SideName]] = ("base", "head")

_NOT_CODE: Final = frozenset({".git", "__pycache__", ".pytest_cache", ".venv", "node_modules"})


@dataclass(frozen=True, kw_only=True)
class Source:
    """A side as requested, before a tree is checked out for it.

    Exactly one of `commit` and `folder` is set. `label` is its name in reports.
    """

    name: SideName
    label: str
    python: str
    commit: str | None = None
    folder: Path | None = None
    repository: Repository | None = None

    def identity(self) -> dict[str, str | None]:
        """Identity required to resume: commit, uncommitted changes and Python."""
        if self.folder is None:
            return {"commit": self.commit, "python": self.python}
        if (tree := self._working_tree) is not None:
            state = {"commit": tree.head(), "changes": tree.digest()}
        else:
            state = {"contents": _content_hash(self.folder)}
        return {"folder": str(self.folder), **state, "python": self.python}

    def changed_files(self) -> list[str]:
        """Uncommitted changes of a working tree."""
        return [] if self._working_tree is None else self._working_tree.changed_files()

    @property
    def _working_tree(self) -> Repository | None:
        """The repository whose working tree the folder is, if it is one."""
        repository = self.repository
        return repository if repository is not None and repository.top == self.folder else None

    def files(self) -> dict[str, bytes]:
        """Fingerprints of a folder's files by name; in git only of the changed ones."""
        if self.folder is None:
            return {}
        if self._working_tree is not None:
            return {name: file_fingerprint(self.folder / name) for name in self.changed_files()}
        return _code_fingerprints(self.folder)

    def require_unchanged(
        self, identity: Mapping[str, str | None], files: Mapping[str, bytes]
    ) -> None:
        """Refuse code that changed since the start, according to :meth:`identity`.

        Raises:
            UsageProblem: the message names the changed `files`.
        """
        if self.identity() == identity:
            return
        if self.folder is None:
            raise UsageProblem(
                f"--{self.name}: {self.label} is now a different commit than when the "
                "comparison started; start a new one"
            )
        raise UsageProblem(
            f"the files of the {self.name} in {self.folder} changed after the comparison started, "
            f"so later launches would measure different code: {self._changes_since(files)}"
        )

    def _changes_since(self, old_files: Mapping[str, bytes]) -> str:
        """Describe the files that changed since `old_files`, and the remedy."""
        after = self.files()
        names = sorted(n for n in {*old_files, *after} if old_files.get(n) != after.get(n))
        if not names:
            return "another commit is checked out; start a new comparison"
        remedy = "add a .gitignore containing '*' to that folder"
        if self._working_tree is not None:
            remedy = "ignore them in git"
        return (
            f"{listed(names)}. If the benchmarks write these files, or they are logs, {remedy} or "
            "write them elsewhere; then start again"
        )


@dataclass(frozen=True, kw_only=True)
class Side:
    """A side that is ready to launch.

    `tree` is the top of its code and `folder`, in or below it, where pytest runs.
    """

    name: SideName
    tree: Path
    folder: Path
    python: str

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
    return Side(name=source.name, tree=tree, folder=folder, python=source.python)


def _folder(
    name: SideName, label: str, folder: Path, python: str, repository: Repository | None
) -> Source:
    """Use a folder as it is; its label counts uncommitted changes."""
    source = Source(name=name, label=label, python=python, folder=folder, repository=repository)
    changed = len(source.changed_files())
    return (
        replace(source, label=f"{label} ({counted(changed, 'changed file')})")
        if changed
        else source
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


def _content_hash(folder: Path) -> str:
    """Hash that identifies the files below `folder`: 16 hexadecimal digits."""
    sums = sha256()
    for name, fingerprint in _code_fingerprints(folder).items():
        sums.update(os.fsencode(name))
        sums.update(fingerprint)
    return sums.hexdigest()[:16]


def _code_fingerprints(folder: Path) -> dict[str, bytes]:
    """Fingerprints of all files below `folder` that may be code, by name."""
    fingerprints = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if f not in _NOT_CODE and not _ignores_itself(parent, f)
        )
        for name in sorted(files):
            file = Path(parent, name)
            if not receives_own_output(file):
                fingerprints[str(file.relative_to(folder))] = file_fingerprint(file)
    return fingerprints


def _ignores_itself(parent: str, folder: str) -> bool:
    """Whether the folder ignores itself, as results folders do; then it holds no code."""
    mark = Path(parent, folder, ".gitignore")
    try:
        return mark.read_text(encoding="utf-8").strip() == "*"
    except (OSError, ValueError):
        return False
