"""The tags of a run: words that people give it later, in ``tags.json`` beside its results.

A tag protects a run from being pruned. The word in the run's id was given at its start and is no
tag.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from gpubench_plugin import json_file
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results import atomic
from gpubench_plugin.results.locking import locked
from gpubench_plugin.results.run_id import path_component

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gpubench_plugin.results.run_directory import RunDirectory

FILE: Final = "tags.json"
SCHEMA_VERSION: Final = 1


def tags_of(directory: RunDirectory) -> tuple[str, ...]:
    """The tags of the run in `directory`, sorted; none where nobody gave it one.

    Raises:
        ResultsError: the file cannot be read, is broken, or newer than this version knows.
    """
    path = directory.path / FILE
    if not os.path.lexists(path):
        return ()
    return _checked(path, json_file.load(path, limit=json_file.LIMIT_OF_LABELS_BYTES))


def change_tags(
    directory: RunDirectory, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> tuple[str, ...]:
    """Give the run in `directory` tags, or take them; the tags it has then.

    Raises:
        UsageProblem: a word is none that a tag can be.
        ResultsError: as :func:`tags_of`, or the file could not be written.
    """
    for tag in add:
        path_component("tag", tag)
    with locked(directory.path):
        tags = sorted({*tags_of(directory), *add} - {*remove})
        document = {"schema_version": SCHEMA_VERSION, "tags": tags}
        atomic.write_json(directory.path / FILE, document)
    return tuple(tags)


def _checked(path: Path, facts: object) -> tuple[str, ...]:
    version = facts.get("schema_version") if isinstance(facts, dict) else None
    if not isinstance(facts, dict) or not isinstance(version, int):
        raise ResultsError(f"{path} holds no tags: it has no schema_version")
    if version > SCHEMA_VERSION:
        raise ResultsError(
            f"{path}: schema_version {version}, but this version of gpubench reads up to "
            f"{SCHEMA_VERSION}; upgrade pytest-gpubench to read it"
        )
    tags = facts.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ResultsError(f"{path} breaks the schema at tags: not a list of texts")
    return tuple(sorted(set(tags)))
