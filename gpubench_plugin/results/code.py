"""Which code a run measures: the project's files that its benchmarks come from, by their contents.

These are the test modules, the ``conftest.py`` files above them, every module that is loaded from
below the root folder, and what any of them imports from there, inside of functions too. Import
statements are found in the text, as no test has run yet. Unknown stay files that are read as data,
and modules that are named only while a test runs (``importlib.import_module(name)``).
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from functools import cache
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from importlib.machinery import ModuleSpec

_LARGEST_READ: Final = 16 * 1024 * 1024
"""Bytes up to which a file is told from another by its contents."""
_INSTALLED: Final = frozenset({"site-packages", "dist-packages", "node_modules"})
_IMPORT: Final = re.compile(
    rb"""(?:^|[;:])[ \t]*(?:
        from[ \t]+(?P<package>[.\w]+)[ \t]+import[ \t]*(?P<names>\([^)]*\)|[^\n;]+)
        |import[ \t]+(?P<modules>[^\n;(]+)
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""An import statement. 10 times as fast as :mod:`ast`, which takes 10 µs a line; text in a string
that looks like one only adds a file that is there."""
_COMMENT: Final = re.compile(rb"#[^\n]*|\\\n")


def fingerprint(file: Path) -> bytes:
    """What tells the contents of `file` from others; of a large one, size and time."""
    try:
        found = file.lstat()
        if file.is_symlink():
            return os.fsencode(file.readlink())
        if found.st_size <= _LARGEST_READ and file.is_file():
            return sha256(file.read_bytes()).digest()
    except OSError:
        return b"unreadable"
    return f"{found.st_size} {found.st_mtime_ns}".encode()


def digests(rootdir: Path, node_ids: Iterable[str]) -> dict[str, str]:
    """The files of the code by name, relative to `rootdir`: 16 hexadecimal digits of each.

    Args:
        rootdir: pytest's, below which the project's code is.
        node_ids: of the benchmarks, as they have been collected.
    """
    files = _with_imported({*_sources(rootdir, node_ids), *_loaded(rootdir)}, rootdir)
    return {name: _digest(rootdir / name) for name in _named(rootdir, files)}


def changes(rootdir: Path, node_ids: Iterable[str], before: Mapping[str, str]) -> list[str]:
    """The files that are not as `before`, in words; new ones only as far as `node_ids` need them.

    What else happens to be loaded now may be due to other tests that are collected beside them.
    """
    said = {
        name: "changed" if os.path.lexists(rootdir / name) else "gone"
        for name, digest in before.items()
        if _digest(rootdir / name) != digest
    }
    needed = _with_imported(set(_sources(rootdir, node_ids)), rootdir)
    said |= dict.fromkeys((n for n in _named(rootdir, needed) if n not in before), "new")
    return [f"{name} ({word})" for name, word in sorted(said.items())]


def _digest(file: Path) -> str:
    return sha256(fingerprint(Path(os.path.realpath(file)))).hexdigest()[:16]


def _named(rootdir: Path, files: Iterable[Path]) -> list[str]:
    return sorted(Path(os.path.relpath(file, rootdir)).as_posix() for file in files)


def _sources(rootdir: Path, node_ids: Iterable[str]) -> Iterator[Path]:
    """The test modules with the benchmarks `node_ids`, and the conftests they stand under."""
    for name in dict.fromkeys(node_id.partition("::")[0] for node_id in node_ids):
        module = Path(os.path.normpath(rootdir / name))
        yield module
        for folder in module.parents:
            if folder.is_relative_to(rootdir) and (conftest := folder / "conftest.py").is_file():
                yield conftest


def _loaded(rootdir: Path) -> Iterator[Path]:
    """The files of all modules that are loaded from below `rootdir`."""
    for module in list(sys.modules.values()):
        # Not by `getattr`: some modules load others when they are asked.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and _is_own(file, rootdir):
            yield Path(file)


def _is_own(file: str, rootdir: Path) -> bool:
    """Whether it is the project's: below `rootdir`, neither installed there nor hidden."""
    root = _prefix(rootdir)
    if not file.startswith(root):  # of most modules; pathlib takes 20 times as long to tell
        return False
    parts = Path(file[len(root) :]).parts
    return (
        _INSTALLED.isdisjoint(parts)
        and not any(part.startswith(".") for part in parts)
        and not any(file.startswith(prefix) for prefix in _environments(root))
    )


def _prefix(folder: object) -> str:
    """What the path of everything in `folder` begins with."""
    return f"{str(folder).rstrip(os.sep)}{os.sep}"


@cache
def _environments(root: str) -> tuple[str, ...]:
    """This Python's own folders, where they lie below `root`."""
    prefixes = {_prefix(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    return tuple(p for p in prefixes if p.startswith(root) and p != root)


def _with_imported(files: set[Path], rootdir: Path) -> set[Path]:
    """The `files`, and whatever they import from below `rootdir`, and so on."""
    modules = _Modules(rootdir)
    found, ahead = set(files), list(files)
    while ahead:
        file = ahead.pop()
        if file.suffix == ".py":
            new = modules.imported_by(file) - found
            found |= new
            ahead += new
    return found


class _Modules:
    """Finds the files of modules without importing any; each is looked for once."""

    def __init__(self, rootdir: Path):
        self._rootdir = rootdir
        self._resolve = cache(self._resolved)

    def imported_by(self, file: Path) -> set[Path]:
        """The project's files behind the import statements in `file`."""
        try:
            text = file.read_bytes()
        except OSError:
            return set()
        found: set[Path] = set()
        for statement in _IMPORT.finditer(_COMMENT.sub(b" ", text)):
            package, names, modules = (
                (part or b"").decode("utf-8", "replace") for part in statement.groups()
            )
            for name in _listed(modules):
                found |= self._resolve(tuple(name.split(".")), None)[0]
            if package:
                dots = len(package) - len(package.lstrip("."))
                start = (str(file.parents[dots - 1]),) if 0 < dots <= len(file.parents) else None
                head = tuple(part for part in package[dots:].split(".") if part)
                for name in _listed(names):
                    found |= self._resolve((*head, name), start)[0]
        return found

    def _resolved(
        self, parts: tuple[str, ...], start: tuple[str, ...] | None
    ) -> tuple[frozenset[Path], tuple[str, ...] | None]:
        """The project's files on the way to a module, and where its submodules are.

        The module is named by its `parts`, from the folder `start` or, if None, from ``sys.path``;
        the last part may be another name than a module's. Without places nothing is below it.
        """
        if not parts:
            return self._own([] if start is None else [f"{start[0]}/__init__.py"]), start
        files, places = self._resolve(parts[:-1], start)
        if places == () or (spec := _spec(parts[-1], places)) is None:
            return files, ()
        if spec.has_location and spec.origin is not None:
            files |= self._own([spec.origin])
        below = tuple(spec.submodule_search_locations or ())
        own = any(_is_own(_prefix(place), self._rootdir) for place in below)
        return files, below if own else ()

    def _own(self, files: list[str]) -> frozenset[Path]:
        own = (Path(file) for file in files if _is_own(file, self._rootdir))
        return frozenset(file for file in own if file.is_file())


def _spec(name: str, places: tuple[str, ...] | None) -> ModuleSpec | None:
    try:
        if places is None:
            return importlib.util.find_spec(name)
        return PathFinder.find_spec(name, places)
    except (ImportError, AttributeError, ValueError):  # of ``__main__``, for example
        return None


def _listed(names: str) -> list[str]:
    """The names in an import statement, less what they are called there."""
    words = (part.split() for part in names.strip("() \t\r\n").split(","))
    return [parts[0] for parts in words if parts]
