"""The measured code: content hashes of the ``*.py`` files below the rootdir, and its commit."""

from __future__ import annotations

import filecmp
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.environment.fingerprints import ABSENT, differences
from gpubench_plugin.environment.redaction import redact
from gpubench_plugin.system.child_process import ChildError, output_of
from gpubench_plugin.system.json_files import jsonable

# Their hashes take 60 kB in the journal.
_MOST_FILES: Final = 1000
_NO_CODE: Final = frozenset({"site-packages", "dist-packages", "node_modules"})


def digests(rootdir: Path) -> dict[str, str]:
    """Content hashes (16 hex digits) of the code files below `rootdir`, by path from there.

    More than a thousand files have one hash together. Hidden folders, installed packages, and
    folders that ignore themselves, as those of results and virtual environments do, hold no code;
    links to folders are not followed.
    """
    hashes = {file.relative_to(rootdir).as_posix(): _digest(file) for file in _files(rootdir)}
    if len(hashes) <= _MOST_FILES:
        return hashes
    return {f"more than {_MOST_FILES} *.py files": _hash(json.dumps(hashes).encode())}


def changes(rootdir: Path, recorded: Mapping[str, str]) -> list[str]:
    """Code files that differ from those `recorded` by :func:`digests`: ``lib/x.py (changed)``."""
    return [
        f"{name} ({'new' if old is ABSENT else 'gone' if new is ABSENT else 'changed'})"
        for name, (old, new) in differences(recorded, digests(rootdir)).items()
    ]


def same_files(first: Path, second: Path) -> bool:
    """Whether two folders have the same files, where code may be; byte code does not count."""
    if first == second:
        return True
    names, others = ({f.relative_to(top) for f in _files(top, "")} for top in (first, second))
    return names == others and not any(filecmp.cmpfiles(first, second, names, shallow=False)[1:])


def folders_without(rootdir: Path) -> list[str]:
    """Folders below `rootdir` in which :func:`digests` finds no code, by path from there."""
    return [
        Path(parent, name).relative_to(rootdir).as_posix()
        for parent, out, _ in _walk(rootdir)
        for name in out
    ]


def _walk(rootdir: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Folders that may hold code: the subfolders that may not, and the files."""
    for parent, folders, names in os.walk(rootdir):
        out = [name for name in folders if not _may_hold_code(Path(parent, name))]
        folders[:] = sorted({*folders} - {*out})
        yield parent, out, names


def _files(rootdir: Path, suffix: str = ".py") -> Iterator[Path]:
    for parent, _, names in _walk(rootdir):
        code = (name for name in names if name.endswith(suffix) and not name.endswith(".pyc"))
        yield from (Path(parent, name) for name in sorted(code))


def _digest(file: Path) -> str:
    with suppress(OSError):
        if not file.is_file():  # a pipe would block
            return "no file"
        return _hash(file.read_bytes())
    return "unreadable"


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


def _may_hold_code(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in _NO_CODE:
        return False
    if os.fspath(folder) in {sys.prefix, sys.base_prefix}:
        return False
    with suppress(OSError, ValueError):
        return (folder / ".gitignore").read_text(encoding="utf-8").strip() != "*"
    return True


_TIMEOUT_S: Final = 10.0
"""Limit for a repository on a slow network disk, which must not hold up a run."""

HOOK_VARIABLES: Final = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
    )
)
"""Variables by which git points a hook to its repository; they would redirect every git call."""

_BRANCH_VARIABLES: Final = ("GITHUB_REF_NAME", "CI_COMMIT_BRANCH")
"""Branch variables of GitHub and GitLab; for a fork's change they never name the fork's branch."""


def commit_facts(folder: Path, *, environ: Mapping[str, str] = os.environ) -> Json | None:
    """Commit, branch, whether it has uncommitted changes, and remote of the repository of `folder`.

    None without git or a repository; single unknown facts are None. The remote has no credentials.
    In CI, where no branch may be checked out, `environ` names it.
    """
    commit = ask_git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = ask_git(folder, "status", "--porcelain", "--untracked-files=no")
    remote = ask_git(folder, "config", "--get", "remote.origin.url")
    facts = {
        "commit": commit,
        "branch": ask_git(folder, "branch", "--show-current") or _branch_in_ci(environ),
        "dirty": None if changes is None else bool(changes),
        "remote": remote and redact(remote),
    }
    return {name: jsonable(fact) for name, fact in facts.items()}


def _branch_in_ci(environ: Mapping[str, str]) -> str | None:
    if environ.get("GITHUB_REF_TYPE") == "tag":
        return None
    return next((environ[name] for name in _BRANCH_VARIABLES if environ.get(name)), None)


def ask_git(folder: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Standard output of :func:`run_git`; None if it fails."""
    with suppress(ChildError):
        return run_git(folder, *arguments, timeout_s=timeout_s)
    return None


def run_git(folder: Path, *arguments: str, timeout_s: float) -> str:
    """Standard output of git in `folder`, run without prompts and optional locks.

    git sees the user's or CI's variables, such as ``GIT_CONFIG_COUNT`` with a ``safe.directory``,
    except :data:`HOOK_VARIABLES`.

    Raises:
        ChildError: git is missing, failed, or timed out.
    """
    environ = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    output = output_of(
        ["git", "-C", os.fspath(folder), *arguments],
        environ={**environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        timeout_s=timeout_s,
    )
    return output.decode("utf-8", "surrogateescape").rstrip("\n")
