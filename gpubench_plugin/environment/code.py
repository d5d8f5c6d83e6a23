"""Digests of a project's code: content hashes of the ``*.py`` files below its root, git or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

_NO_CODE: Final = frozenset({"site-packages", "dist-packages", "node_modules"})
# Larger files count by size and mtime: 16 MiB are hashed in about 11 ms.
_LARGEST_READ: Final = 16 * 1024 * 1024


def file_fingerprint(file: Path) -> bytes:
    """Content hash of `file`; for a large one, size and mtime."""
    try:
        status = file.stat()
        if status.st_size <= _LARGEST_READ and file.is_file():
            return sha256(file.read_bytes()).digest()
    except OSError:
        return b"unreadable"
    return f"{status.st_size} {status.st_mtime_ns}".encode()


def digests(rootdir: Path) -> dict[str, str]:
    """Hashes (16 hex digits) of the project's code files, by path as seen from `rootdir`.

    The project is the git repository around `rootdir`, or what is below it. Hidden folders,
    installed packages, and folders that ignore themselves, as those of results and virtual
    environments do, hold no code.
    """
    return {
        Path(os.path.relpath(file, rootdir)).as_posix(): file_fingerprint(file).hex()[:16]
        for file in _files(rootdir)
    }


def changes(rootdir: Path, recorded: Mapping[str, str]) -> list[str]:
    """Code files that differ from those `recorded` by :func:`digests`: ``lib/x.py (changed)``."""
    current = digests(rootdir)
    states = dict.fromkeys(current.keys() - recorded.keys(), "new")
    for name, digest in recorded.items():
        if current.get(name) != digest:
            states[name] = "changed" if name in current else "gone"
    return [f"{name} ({state})" for name, state in sorted(states.items())]


def _files(rootdir: Path) -> Iterator[Path]:
    around = (folder for folder in (rootdir, *rootdir.parents) if (folder / ".git").exists())
    for parent, folders, names in os.walk(next(around, rootdir)):
        folders[:] = sorted(name for name in folders if _may_hold_code(Path(parent, name)))
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".py"))


def _may_hold_code(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in _NO_CODE:
        return False
    if os.fspath(folder) in {sys.prefix, sys.base_prefix}:
        return False
    try:
        return (folder / ".gitignore").read_text(encoding="utf-8").strip() != "*"
    except (OSError, ValueError):
        return True
