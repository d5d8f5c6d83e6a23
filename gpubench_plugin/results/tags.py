"""Run tags, added later by users, in ``tags.json`` in the run directory.

A tag protects a run from pruning; the word in its id does not. The registry has a copy, in the
run's document.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from gpubench_plugin.core.records import Json
from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.environment.files import locked
from gpubench_plugin.results.run_directory import RunDirectory, path_component

FILE: Final = "tags.json"
FORMAT: Final = stored.Format(kind="tags file", newest=3, limit=json_files.LIMIT_OF_LABELS_BYTES)


@dataclass(frozen=True, kw_only=True)
class TagFile:
    """Tags of a run."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    schema_version: Literal[3] = 3
    tags: tuple[str, ...]


def tags_of(directory: RunDirectory) -> tuple[str, ...]:
    """Sorted tags of the run in `directory`.

    Raises:
        ResultsError: the file cannot be read, is broken, or of another version.
    """
    path = directory.path / FILE
    if not path.exists():
        return ()
    file = stored.restore(TagFile, FORMAT.load(path), str(path), strict=True)
    return tuple(sorted({*file.tags}))


def change_tags(
    directory: RunDirectory, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> tuple[str, ...]:
    """Add or remove tags of the run in `directory`; return the resulting tags.

    Raises:
        UsageProblem: a tag is invalid.
        ResultsError: as :func:`tags_of`, or the file could not be written.
    """
    for tag in add:
        path_component("tag", tag)
    with locked(directory.path):
        tags = tuple(sorted({*tags_of(directory), *add} - {*remove}))
        json_files.write_json(directory.path / FILE, stored.dump(TagFile(tags=tags)))
    return tags
