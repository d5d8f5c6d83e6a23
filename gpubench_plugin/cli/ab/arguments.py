"""The arguments that the launches' pytest gets: the user's, checked and valid in either tree."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gpubench_plugin.errors import UsageProblem

_OURS: Final = {
    "results-dir": "give it to `gpubench ab` instead, before --",
    "registry": "the launches are no runs of their own",
    "resume": "give it to `gpubench ab` instead, before --",
    "launches": "each launch of `gpubench ab` is a fresh process already",
    "baseline": "`gpubench ab` judges, not its launches",
    "gate": "`gpubench ab` judges, not its launches",
}
"""Options that the launches cannot be given, and why."""
_PARALLEL: Final = ("-n", "--numprocesses", "--dist")
_WRITING: Final = frozenset(
    (
        *("--junitxml", "--junit-xml", "--log-file", "--basetemp", "--report-log", "--html"),
        *("--benchmark-json", "--benchmark-histogram", "--benchmark-cprofile-dump"),
    )
)
"""Options that name a file or folder which every launch would write."""
_OF_A_PLACE: Final = frozenset(
    ("-c", "--config-file", "--rootdir", "--confcutdir", "--ignore", "--ignore-glob")
)
"""Options that name a place in the tree, so that it has to be the side's own."""


def arguments_from(texts: Sequence[str], *, here: Path, repository: Path | None) -> tuple[str, ...]:
    """The arguments of pytest, in which no path leads both sides to the same tree.

    An absolute path in the repository becomes one relative to where the user stands.

    Raises:
        UsageProblem: an option among them is not the launches' to have, or would make every launch
            write into its tree.
    """
    return tuple(_checked(texts, here, repository))


def _checked(texts: Sequence[str], here: Path, repository: Path | None) -> Iterator[str]:
    for number, text in enumerate(texts):
        name, equals, value = text.partition("=")
        _refuse_ours(text, name)
        if name in _WRITING:
            following = "".join(texts[number + 1 : number + 2])
            _refuse_in_tree(name, value if equals else following, here, repository)
        if equals and name in _OF_A_PLACE:
            yield f"{name}={_moved(value, here, repository)}"
        else:
            yield _moved(text, here, repository)


def _refuse_ours(text: str, name: str) -> None:
    short = name.removeprefix("--").removeprefix("gpubench-")
    if name.startswith("--") and (short in _OURS or short.startswith("gate-")):
        why = _OURS.get(short, _OURS["gate"])
        raise UsageProblem(f"{text}: not an argument for the launches: {why}")
    if name in _PARALLEL or (name[:2] == "-n" and name[2:3].isdigit()):
        raise UsageProblem(f"{text}: nothing is measured beside other work; leave it out")


def _refuse_in_tree(name: str, value: str, here: Path, repository: Path | None) -> None:
    place = Path(os.path.normpath(here / value))
    if place.is_relative_to(here if repository is None else repository):
        raise UsageProblem(
            f"{name}={value}: each launch would write that into the tree that is measured; leave "
            "it out (verdicts.json has all that is found), or give a path outside of the tree"
        )


def _moved(text: str, here: Path, repository: Path | None) -> str:
    """`text`, relative to `here` if it begins with an absolute path in the repository."""
    path, separator, test = text.partition("::")
    if repository is None or not path.startswith("/"):
        return text
    if not Path(path).is_relative_to(repository):
        return text
    return os.path.relpath(path, here) + separator + test
