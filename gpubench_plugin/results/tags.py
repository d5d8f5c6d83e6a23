"""Run tags, added later by users, stored in ``tags.json`` in the run directory.

A tag protects a run from pruning; the word in its id does not. File and registry keep the time of
each change, so that copies of a run can be tagged independently and merged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.core.records import Json
from gpubench_plugin.environment import files, json_files, stored
from gpubench_plugin.environment.locks import locked
from gpubench_plugin.results.journal import utc_now
from gpubench_plugin.results.logical_time import time_after
from gpubench_plugin.results.run_directory import RunDirectory, path_component

FILE: Final = "tags.json"
FORMAT: Final = stored.Format(kind="tags file", newest=2, limit=json_files.LIMIT_OF_LABELS_BYTES)
"""Version 2 added the changes."""

_ACTIONS: Final = ("remove", "add")
"""Order of changes at the same time: adding wins, since a tag protects."""


@dataclass(frozen=True, kw_only=True)
class TagChange:
    """A tag added or removed at `time` (UTC, ISO 8601; empty in files of version 1)."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    time: str
    tag: str
    action: Literal["add", "remove"]


@dataclass(frozen=True, kw_only=True)
class TagFile:
    """Tags of a run, and the changes that led to them."""

    schema_version: int
    tags: tuple[str, ...]
    changes: tuple[TagChange, ...]


def current_tags(changes: Iterable[TagChange]) -> tuple[str, ...]:
    """Sorted tags after replaying `changes` in any order."""
    last_action = {change.tag: change.action for change in _in_order(changes)}
    return tuple(sorted(tag for tag, action in last_action.items() if action == "add"))


def tags_of(directory: RunDirectory) -> tuple[str, ...]:
    """Sorted tags of the run in `directory`; raises as :func:`tag_changes`."""
    return current_tags(tag_changes(directory))


def tag_changes(directory: RunDirectory) -> frozenset[TagChange]:
    """All tag changes of the run in `directory`.

    Raises:
        ResultsError: the file cannot be read, is broken, or of a newer version.
    """
    path = directory.path / FILE
    try:
        text = files.read(path, limit=FORMAT.limit)
    except FileNotFoundError:
        if path.is_symlink():
            raise BrokenFile(f"{path} is a dangling symbolic link") from None
        return frozenset()
    return from_text(text, str(path))


def change_tags(
    directory: RunDirectory,
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    known_changes: Iterable[TagChange] = (),
    now: Callable[[], str] = utc_now,
) -> tuple[str, ...]:
    """Add or remove tags of the run in `directory`; return the resulting tags.

    `known_changes`, made elsewhere, are merged.

    Raises:
        UsageProblem: a tag is invalid.
        ResultsError: as :func:`tag_changes`, or the file could not be written.
    """
    for tag in add:
        path_component("tag", tag)
    with locked(directory.path):
        changes = {*tag_changes(directory), *known_changes}
        time = time_after(max((change.time for change in changes), default=""), now())
        changes |= {TagChange(time=time, tag=tag, action="add") for tag in {*add} - {*remove}}
        changes |= {TagChange(time=time, tag=tag, action="remove") for tag in remove}
        json_files.write_text(directory.path / FILE, to_text(changes))
    return current_tags(changes)


def to_text(changes: Iterable[TagChange]) -> str:
    """Serialize tag changes."""
    sorted_changes = tuple(_in_order(changes))
    file = TagFile(
        schema_version=FORMAT.newest, tags=current_tags(sorted_changes), changes=sorted_changes
    )
    return json_files.text(stored.dump(file), indent=2) + "\n"


def from_text(text: str | bytes, label: str) -> frozenset[TagChange]:
    """Parse a tags file, called `label` in messages; raises BrokenFile."""
    fields = FORMAT.parse(text, label)
    has_changes = fields["schema_version"] > 1
    fields = fields if has_changes else {**fields, "changes": []}
    file = stored.restore(TagFile, fields, label, strict=True)
    if not has_changes:
        return frozenset(TagChange(time="", tag=tag, action="add") for tag in file.tags)
    if current_tags(file.changes) != tuple(sorted({*file.tags})):
        raise BrokenFile(
            f"{label} is inconsistent: its changes lead to other tags; edit it only with "
            "'gpubench runs tag'"
        )
    return frozenset(file.changes)


def _in_order(changes: Iterable[TagChange]) -> list[TagChange]:
    return sorted(
        {*changes}, key=lambda change: (change.time, _ACTIONS.index(change.action), change.tag)
    )
