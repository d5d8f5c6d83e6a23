"""Code fingerprint: content hashes of the project files that benchmarks load.

At the start of a run these are the test modules, their ``conftest.py`` files, all modules loaded
from the project, and their transitive imports from it, also inside functions. As no test has run
yet, imports are parsed from the source. What a benchmark loads beyond these, by a computed name
say, is recorded after it ran: :class:`LoadedFiles`. The project is the root folder or the git
repository around it. Files read as data are unknown.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

_LARGEST_READ: Final = 16 * 1024 * 1024
"""Larger files count by size and mtime: 16 MiB are hashed in about 11 ms (0.7 s per GiB)."""
_INSTALLED: Final = frozenset({"site-packages", "dist-packages", "node_modules"})
_BLANK: Final = rb"(?:[ \t]|\\\r?\n)"
_IMPORT: Final = re.compile(
    rb"""(?:^|[;:])[ \t]*(?:
        from BLANK+(?P<package>(?:[.\w\x80-\xff]|\\\r?\n[ \t]*)+)BLANK+
            import BLANK*(?P<names>\((?:[^)#]|\#[^\n]*)*\)|(?:\\\r?\n|[^\n;#])+)
        |import BLANK+(?P<modules>(?:\\\r?\n|[^\n;(#])+)
    )""".replace(b"BLANK", _BLANK),
    re.MULTILINE | re.VERBOSE,
)
"""An import statement. 10 times as fast as :mod:`ast`, which takes 10 µs a line; text in a string
or a comment that looks like one only adds a file that is there."""
_NAMED: Final = re.compile(
    rb"""import(?:orskip|_module|__)\s*\(\s*(?:\w+\s*=\s*)?[bruBRU]?(["'])([.\w\x80-\xff]+)\1"""
)
"""An import by literal name: ``importorskip``, ``import_module`` or ``__import__``. A pattern with
a constant prefix is searched 6 times as fast."""
_IGNORED: Final = re.compile(rb"#[^\n]*|\\\r?\n")
_AROUND_DOT: Final = re.compile(rb"\s*\.\s*")


def file_fingerprint(file: Path) -> bytes:
    """Content hash of `file`; for a large one, size and mtime."""
    try:
        status = file.lstat()
        if file.is_symlink():
            return os.fsencode(file.readlink())
        if status.st_size <= _LARGEST_READ and file.is_file():
            return sha256(file.read_bytes()).digest()
    except OSError:
        return b"unreadable"
    return f"{status.st_size} {status.st_mtime_ns}".encode()


def digests(rootdir: Path, node_ids: Iterable[str]) -> dict[str, str]:
    """Content hashes (16 hex digits) of the files behind `node_ids`, by path below `rootdir`."""
    loaded = _loaded(rootdir, list(sys.modules))
    return _digests(rootdir, _with_imported({*_sources(rootdir, node_ids), *loaded}, rootdir))


def merge_digests(loaded: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Merge the hashes in `loaded`; conflicting ones never match any file."""
    digests_by_name: dict[str, str] = {}
    for files in loaded:
        for name, digest in files.items():
            digests_by_name[name] = (
                digest if digests_by_name.get(name, digest) == digest else "several"
            )
    return digests_by_name


class LoadedFiles:
    """Tracks project files loaded into this process from now on."""

    def __init__(self, rootdir: Path):
        self._rootdir = rootdir
        self._known_modules = set(sys.modules)
        self._count = len(self._known_modules)

    def newly_loaded(self) -> dict[str, str]:
        """Files loaded since the last call, as :func:`digests`; cheap without new modules.

        A module that replaces a removed one is missed.
        """
        if len(sys.modules) == self._count:
            return {}
        new = sys.modules.keys() - self._known_modules
        self._known_modules |= new
        self._count = len(sys.modules)
        return _digests(self._rootdir, _loaded(self._rootdir, new))


def changes(rootdir: Path, node_ids: Iterable[str], recorded: Mapping[str, str]) -> list[str]:
    """Files that differ from `recorded`, as text; new ones only if `node_ids` need them.

    Others may have been loaded by tests collected alongside.
    """
    state_by_name = {
        name: "changed" if os.path.lexists(_path(rootdir, name)) else "gone"
        for name, digest in recorded.items()
        if _digest(_path(rootdir, name)) != digest
    }
    needed_files = _with_imported(set(_sources(rootdir, node_ids)), rootdir)
    state_by_name |= dict.fromkeys(
        (n for n in _relative_names(rootdir, needed_files) if n not in recorded), "new"
    )
    return [f"{name} ({state})" for name, state in sorted(state_by_name.items())]


def _digests(rootdir: Path, files: Iterable[Path]) -> dict[str, str]:
    return {name: _digest(_path(rootdir, name)) for name in _relative_names(rootdir, files)}


def _path(rootdir: Path, name: str) -> Path:
    """Path of the named file; names above `rootdir` are resolved lexically."""
    return Path(os.path.normpath(rootdir / name))


def _digest(file: Path) -> str:
    return sha256(file_fingerprint(Path(os.path.realpath(file)))).hexdigest()[:16]


def _relative_names(rootdir: Path, files: Iterable[Path]) -> list[str]:
    return sorted({Path(os.path.relpath(file, rootdir)).as_posix() for file in files})


def _sources(rootdir: Path, node_ids: Iterable[str]) -> Iterator[Path]:
    """Test modules of the benchmarks `node_ids`, and their conftests."""
    top_folder = Path(_roots(rootdir)[-1])
    for name in dict.fromkeys(node_id.partition("::")[0] for node_id in node_ids):
        module = _path(rootdir, name)
        yield module
        for folder in module.parents:
            if folder in rootdir.parents or not folder.is_relative_to(top_folder):
                break  # pytest does not look for conftests above
            if (conftest := folder / "conftest.py").is_file():
                yield conftest


def _loaded(rootdir: Path, names: Iterable[str]) -> Iterator[Path]:
    """Project files among the modules `names`."""
    for module in [sys.modules.get(name) for name in names]:
        # Not by `getattr`: lazy modules would import others.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and _is_own(file, rootdir):
            yield Path(os.path.normpath(file))


def _is_own(file: str, rootdir: Path) -> bool:
    """Whether the file belongs to the project: below a root, not installed or hidden."""
    if ".." in file:  # ``pythonpath = ..`` in an ini file
        file = os.path.normpath(file) + os.sep * file.endswith(os.sep)
    # Most modules have none; string prefixes are 20 times as fast as pathlib.
    root = next((root for root in _roots(rootdir) if file.startswith(root)), None)
    if root is None:
        return False
    parts = Path(file[len(root) :]).parts
    return (
        _INSTALLED.isdisjoint(parts)
        and not any(part.startswith(".") for part in parts)
        and not any(file.startswith(prefix) for prefix in _environments(root))
    )


@cache
def _roots(rootdir: Path) -> tuple[str, ...]:
    """Path prefixes of the project: `rootdir` and the root of its git repository."""
    repository_root = next(
        (f for f in (rootdir, *rootdir.parents) if (f / ".git").exists()), rootdir
    )
    return tuple(dict.fromkeys((_prefix(rootdir), _prefix(repository_root))))


def _prefix(folder: object) -> str:
    """Path prefix of everything in `folder`."""
    return f"{str(folder).rstrip(os.sep)}{os.sep}"


@cache
def _environments(root: str) -> tuple[str, ...]:
    """Folders of this Python installation below `root`."""
    prefixes = {_prefix(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    return tuple(p for p in prefixes if p.startswith(root) and p != root)


def _with_imported(files: set[Path], rootdir: Path) -> set[Path]:
    """The `files` and their transitive imports below `rootdir`."""
    modules = _Modules(rootdir)
    reached, queue = set(files), list(files)
    while queue:
        file = queue.pop()
        if file.suffix == ".py":
            new = modules.imported_by(file) - reached
            reached |= new
            queue += new
    return reached


class _Modules:
    """Resolves module names to files without importing, with a cache."""

    def __init__(self, rootdir: Path):
        self._rootdir = rootdir
        self._resolve = cache(self._find)

    def imported_by(self, file: Path) -> set[Path]:
        """Project files imported by `file`."""
        try:
            text = file.read_bytes()
        except OSError:
            return set()
        return {
            path
            for name in _imports(text.removeprefix(BOM_UTF8))
            for path in self._resolve(*_split_name(name, file))[0]
        }

    def _find(
        self, parts: tuple[str, ...], start: tuple[str, ...] | None
    ) -> tuple[frozenset[Path], tuple[str, ...] | None]:
        """Project files on the path to a module, and the search locations of its submodules.

        `parts` are relative to the folder `start`, or to ``sys.path`` if None; the last one may be
        an attribute. Empty locations end the search.
        """
        if not parts:
            return self._project_files([] if start is None else [f"{start[0]}/__init__.py"]), start
        files, search_paths = self._resolve(parts[:-1], start)
        if search_paths == () or (spec := _spec(parts[-1], search_paths)) is None:
            return files, ()
        if spec.has_location and spec.origin is not None:
            files |= self._project_files([spec.origin])
        locations = tuple(spec.submodule_search_locations or ())
        is_own = any(_is_own(_prefix(folder), self._rootdir) for folder in locations)
        return files, locations if is_own else ()

    def _project_files(self, files: list[str]) -> frozenset[Path]:
        own_paths = (Path(file) for file in files if _is_own(file, self._rootdir))
        return frozenset(file for file in own_paths if file.is_file())


def _spec(name: str, search_paths: tuple[str, ...] | None) -> ModuleSpec | None:
    try:
        if search_paths is None:
            return importlib.util.find_spec(name)
        return PathFinder.find_spec(name, search_paths)
    except (ImportError, AttributeError, ValueError):  # of ``__main__``, for example
        return None


def _imports(text: bytes) -> Iterator[str]:
    """Dotted names imported by the source `text`."""
    for statement in _IMPORT.finditer(text):
        package, names, modules = (part or b"" for part in statement.groups())
        yield from _imported_names(modules)
        if package:
            head = b"".join(_IGNORED.sub(b" ", package).split()).decode("utf-8", "replace")
            dot = "" if head.endswith(".") else "."
            yield from (f"{head}{dot}{name}" for name in _imported_names(names))
    for call in _NAMED.finditer(text):
        yield call[2].decode("utf-8", "replace")


def _split_name(name: str, file: Path) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Parts of a dotted name imported by `file`, and its start package; None for absolute."""
    dots = len(name) - len(name.lstrip("."))
    start = (str(file.parents[dots - 1]),) if 0 < dots <= len(file.parents) else None
    return tuple(part for part in name.split(".") if part), start


def _imported_names(names: bytes) -> list[str]:
    """Names in an import statement without their aliases."""
    cleaned = _AROUND_DOT.sub(b".", _IGNORED.sub(b" ", names)).decode("utf-8", "replace")
    clauses = (part.split() for part in cleaned.strip("() \t\r\n").split(","))
    return [parts[0] for parts in clauses if parts]
