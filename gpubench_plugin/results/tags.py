"""The tags of a run: words that people give it later, in ``tags.json`` beside its results.

A tag protects a run from being pruned. The word in the run's id was given at its start and is no
tag. The file keeps when each tag was given or taken, and so does the registry: of copies of a run
that were tagged apart from each other, nothing is lost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from gpubench_plugin.environment import files, json_files, locked, stored
from gpubench_plugin.errors import BrokenFile, ResultsError
from gpubench_plugin.results.journal import utc_now
from gpubench_plugin.results.logical_time import time_after
from gpubench_plugin.results.run_directory import path_component

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpubench_plugin.results.run_directory import RunDirectory

FILE: Final = "tags.json"
FORMAT: Final = stored.Format(what="file of tags", newest=2, limit=json_files.LIMIT_OF_LABELS_BYTES)
"""Version 2 added the changes."""

_ACTIONS: Final = ("remove", "add")
"""Of two in one moment the second counts: a tag protects."""


@dataclass(frozen=True, kw_only=True)
class TagChange:
    """A tag given or taken at a `time` (UTC, ISO 8601), which is empty in files of version 1."""

    time: str
    tag: str
    action: Literal["add", "remove"]


def tags_in(changes: Iterable[TagChange]) -> tuple[str, ...]:
    """The tags after all `changes`, in whatever order they come, sorted."""
    last = {change.tag: change.action for change in _in_order(changes)}
    return tuple(sorted(tag for tag, action in last.items() if action == "add"))


def tags_of(directory: RunDirectory) -> tuple[str, ...]:
    """The tags of the run in `directory`, sorted; none where nobody gave it one.

    Raises:
        ResultsError: as :func:`tag_changes`.
    """
    return tags_in(tag_changes(directory))


def tag_changes(directory: RunDirectory) -> frozenset[TagChange]:
    """The tags that the run in `directory` was ever given, and those taken from it.

    Raises:
        ResultsError: the file cannot be read, is broken, or newer than this version knows.
    """
    path = directory.path / FILE
    try:
        text = files.read(path, limit=FORMAT.limit)
    except FileNotFoundError:
        if path.is_symlink():
            raise BrokenFile(f"{path} is a symbolic link to nothing") from None
        return frozenset()
    return from_text(text, str(path))


def change_tags(
    directory: RunDirectory,
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    known: Iterable[TagChange] = (),
    now: Callable[[], str] = utc_now,
) -> tuple[str, ...]:
    """Give the run in `directory` tags, or take them; the tags it has then.

    `known` are changes made elsewhere, of which the file is to know as well.

    Raises:
        UsageProblem: a word is none that a tag can be.
        ResultsError: as :func:`tag_changes`, or the file could not be written.
    """
    for tag in add:
        path_component("tag", tag)
    with locked(directory.path):
        changes = {*tag_changes(directory), *known}
        time = time_after(max((change.time for change in changes), default=""), now())
        changes |= {TagChange(time=time, tag=tag, action="add") for tag in {*add} - {*remove}}
        changes |= {TagChange(time=time, tag=tag, action="remove") for tag in remove}
        json_files.write_text(directory.path / FILE, to_text(changes))
    return tags_in(changes)


def to_text(changes: Iterable[TagChange]) -> str:
    """The text of the file."""
    ordered = _in_order(changes)
    document = {
        "schema_version": FORMAT.newest,
        "tags": tags_in(ordered),
        "changes": [asdict(change) for change in ordered],
    }
    return json_files.text(document, indent=2) + "\n"


def from_text(text: str | bytes, where: str) -> frozenset[TagChange]:
    """The changes in the text of a file; `where` names its place in messages.

    Raises:
        ResultsError: it holds no tags, or is newer than this version knows.
    """
    facts = FORMAT.parsed(text, where)
    tags = facts.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ResultsError(f"{where} breaks the schema at tags: not a list of texts")
    if facts["schema_version"] == 1:
        return frozenset(TagChange(time="", tag=tag, action="add") for tag in tags)
    changes = _checked(facts.get("changes"), where)
    if tags_in(changes) != tuple(sorted({*tags})):
        raise ResultsError(
            f"{where} breaks the schema at tags: its changes lead to others; they are changed by "
            "'gpubench runs tag' alone"
        )
    return changes


def _checked(changes: object, where: str) -> frozenset[TagChange]:
    if not isinstance(changes, list) or not all(
        isinstance(one, dict)
        and one.keys() == {"time", "tag", "action"}
        and all(isinstance(value, str) for value in one.values())
        and one["action"] in _ACTIONS
        for one in changes
    ):
        raise ResultsError(
            f"{where} breaks the schema at changes: not a list of time, tag and action"
        )
    return frozenset(TagChange(**one) for one in changes)


def _in_order(changes: Iterable[TagChange]) -> list[TagChange]:
    return sorted(
        {*changes}, key=lambda change: (change.time, _ACTIONS.index(change.action), change.tag)
    )
