"""The two sides of a comparison: code, folder, Python interpreter."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final, Literal

from gpubench_plugin.cli.ab.git import Repository
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.words import counted, listed, short_commit

SideName = Literal["base", "head"]
SIDES: Final[tuple[SideName, SideName]] = ("base", "head")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A side as requested: a `commit`, or a `folder` as it is, with the commit it is based on.

    `label` is its name in reports. `files` are hashes of the folder's uncommitted code by name,
    without git of all of its Python code.
    """

    name: SideName
    label: str
    python: str
    commit: str | None = None
    folder: Path | None = None
    repository: Repository | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def identity(self) -> dict[str, str | None]:
        """What must be the same to resume: commit, uncommitted changes and Python."""
        identity = {"commit": self.commit, "python": self.python}
        if self.folder is None:
            return identity
        changes = sha256("\0".join(f"{n}\0{h}" for n, h in self.files.items()).encode(*_BYTES))
        return {"folder": str(self.folder), "changes": changes.hexdigest()[:16], **identity}

    def require_unchanged(self) -> None:
        """Refuse a folder whose code has changed; raises UsageProblem, which names the files."""
        if self.folder is None:
            return
        commit, files = _code(self.folder, self.repository)
        names = sorted(n for n in {*self.files, *files} if self.files.get(n) != files.get(n))
        if commit == self.commit and not names:
            return
        remedy = "another commit is checked out; start a new comparison"
        if names:
            remedy = (
                f"{listed(names)}. If the benchmarks write these files, ignore them in git or "
                "write them elsewhere; then start again"
            )
        raise UsageProblem(
            f"the files of the {self.name} in {self.folder} changed after the comparison started, "
            f"so later launches would measure different code: {remedy}"
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
    """Use a folder as it is; its label counts uncommitted changes."""
    commit, files = _code(folder, repository)
    if files and _is_working_tree(folder, repository):
        label = f"{label} ({counted(len(files), 'changed file')})"
    return Source(
        name=name,
        label=label,
        python=python,
        commit=commit,
        folder=folder,
        repository=repository,
        files=files,
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


# Names of files may be no valid text.
_BYTES: Final = ("utf-8", "surrogateescape")


def _is_working_tree(folder: Path, repository: Repository | None) -> bool:
    return repository is not None and repository.top == folder


def _code(folder: Path, repository: Repository | None) -> tuple[str | None, dict[str, str]]:
    """The commit that a folder is based on, and hashes of its files that are code."""
    if repository is None or not _is_working_tree(folder, repository):
        return None, {name: _hash(folder / name) for name in _python_files(folder)}
    return repository.head(), {name: _hash(folder / name) for name in repository.changed_files()}


def _python_files(folder: Path) -> Iterator[str]:
    """Python files below a folder, but for hidden folders and virtual environments."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if f[0] != "." and not Path(parent, f, "pyvenv.cfg").exists()
        )
        python = (Path(parent, name) for name in sorted(names) if name.endswith(".py"))
        yield from (str(file.relative_to(folder)) for file in python)


def _hash(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError:  # deleted, a submodule, or unreadable
        return ""
