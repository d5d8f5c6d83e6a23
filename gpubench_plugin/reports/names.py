"""Names of benchmarks on one screen: as short as still tells them apart.

A name is a node id without its file, without ``test_``, and without the precision and the world
size that all of them share; :attr:`ShortNames.common` says what was left out.
"""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from gpubench_plugin.core import catalog
from gpubench_plugin.reports.text import Glyphs, printable, shorten, width

_PREFIX: Final = re.compile(r"(^|::)test_")
_WORLD_SIZE: Final = re.compile(r"(?<![^-])ws(\d+)(?![^-])")
"""A world size among the parameters of an id, which are joined by dashes."""
_MIN_ROOM: Final = 30
"""Width that every name gets: a test's name and the end of its parameters."""
_MIN_PARAMETERS: Final = 10
"""Characters to which parameters are cut at most: the first letters and the last word."""
_MIN_GAIN: Final = 3
"""Characters that are worth an ellipsis."""
_COMMON_RUNS: Final = 2
"""Runs of common words that are left out: more would leave nothing but ellipses."""


def name_room(total: int) -> int:
    """Columns for a name on a terminal of `total` columns, the same in all parts of a screen."""
    return max(_MIN_ROOM, total // 3)


def screen_names(ids: Iterable[str], total: int, glyphs: Glyphs) -> Mapping[str, str]:
    """The name of each of the `ids` in all parts of a screen of `total` columns."""
    return short_names(ids).fitting(name_room(total), glyphs).by_id


@dataclass(frozen=True, kw_only=True)
class ShortNames:
    """Distinct names by node id, safe for a terminal, and what all of them have in common."""

    by_id: Mapping[str, str]
    common: tuple[str, ...] = ()

    def of(self, ids: Iterable[str]) -> list[str]:
        """The names of these `ids`, in order."""
        return [self.by_id[node_id] for node_id in ids]

    def fitting(self, room: int, glyphs: Glyphs) -> ShortNames:
        """The names within `room` columns, still distinct.

        Where one is too long, an ellipsis stands for what the parameters of all have in common,
        then for what all tests' names begin with, for what the parameters of one test have in
        common, for the middle of its parameters, and last of all for the middle of names.
        """
        names = list(self.by_id.values())
        for step in (
            _without_common_parameters,
            _without_common_beginning,
            _without_parameters_of_tests,
            partial(_without_first_parameters, room=room),
            partial(_without_middle_parameters, room=room),
        ):
            if any(width(name) > room for name in names):
                names = _distinct(names, step(names, glyphs.ellipsis))
        names = _numbered(shorten(names, room, glyphs.ellipsis))
        return replace(self, by_id=dict(zip(self.by_id, names, strict=True)))


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Parts of a node id; `variant` are the parameters, None without any."""

    file: str
    test: str
    variant: str | None

    @classmethod
    def of(cls, node_id: str) -> _Parts:
        path, bracket, variant = node_id.partition("[")
        file, separator, test = path.partition("::")
        return cls(
            file=file if separator else "",
            test=test if separator else file,
            variant=variant.removesuffix("]") if bracket else None,
        )


def short_names(ids: Iterable[str]) -> ShortNames:
    """Names for all of the `ids`; a single one keeps its parameters."""
    parts = {node_id: _Parts.of(node_id) for node_id in ids}
    world_size, precision = _common_parameters(parts.values()) if len(parts) > 1 else ("", "")
    files = {part.file for part in parts.values()}
    variants = {i: _variant(part.variant, world_size, precision) for i, part in parts.items()}
    names = {i: _name(part, variants[i]) for i, part in parts.items()}
    for longer in (
        {i: printable(f"{part.file}::{part.test}{variants[i]}") for i, part in parts.items()},
        {node_id: printable(node_id) for node_id in parts},
    ):
        names = _unambiguous(names, longer)
    common = (
        printable(files.pop()) if len(files) == 1 else "",
        f"precision {precision}" if precision else "",
        f"world size {world_size}" if world_size else "",
    )
    return ShortNames(by_id=names, common=tuple(filter(None, common)))


def _unambiguous(names: Mapping[str, str], longer: Mapping[str, str]) -> dict[str, str]:
    """The `names` by id, but the `longer` ones of those that are empty or another one's, too."""
    counts = Counter(names.values())
    return {
        node_id: name if name and counts[name] == 1 else longer[node_id]
        for node_id, name in names.items()
    }


def _common_parameters(parts: Iterable[_Parts]) -> tuple[str, str]:
    """World size of all benchmarks, and the precision of all that have one; empty if they differ.

    Other parameters stay: their values may contain dashes, so that no part of them is one for sure.
    """
    sizes: set[str] = set()
    precisions: set[str] = set()
    known_precisions = catalog.choices("precision")
    for part in parts:
        match = _WORLD_SIZE.search(part.variant or "")
        if match is None:
            return "", ""
        sizes.add(match[1])
        precisions.add(_precision_before(part.variant or "", match.start(), known_precisions))
    precisions.discard("")
    world_size = sizes.pop() if len(sizes) == 1 else ""
    return world_size, precisions.pop() if len(precisions) == 1 else ""


def _precision_before(variant: str, end: int, known_precisions: Iterable[str]) -> str:
    """The precision that stands before the world size at `end`; the longest that fits."""
    fitting = (name for name in known_precisions if f"-{variant[:end]}".endswith(f"-{name}-"))
    return max(fitting, key=len, default="")


def _variant(variant: str | None, world_size: str, precision: str) -> str:
    """The parameters without the common ones."""
    if variant is None:
        return ""
    parts = f"-{variant}-"
    if precision:
        parts = re.sub(rf"-{re.escape(precision)}(?=-ws\d+-)", "", parts, count=1)
    if world_size:
        parts = parts.replace(f"-ws{world_size}-", "-", 1)
    remaining = parts.removeprefix("-").removesuffix("-")
    return f"[{remaining}]" if remaining else ""


def _name(part: _Parts, variant: str) -> str:
    return printable(_PREFIX.sub(r"\1", part.test) + variant)


def _without_common_parameters(names: Sequence[str], ellipsis: str) -> list[str]:
    """Replace the longest run of words that all parameters have in common, and then the next."""
    variants = [name.partition("[")[2].removesuffix("]") for name in names if "[" in name]
    if len(variants) <= 1:
        return list(names)
    if len(set(variants)) == 1:
        return [name.partition("[")[0] for name in names]
    for _ in range(_COMMON_RUNS):
        if run := _longest_common_run(variants, ellipsis):
            variants = [_without_run(variant, run, ellipsis) for variant in variants]
    remaining = iter(variants)
    return [
        f"{name.partition('[')[0]}[{next(remaining)}]" if "[" in name else name for name in names
    ]


def _longest_common_run(variants: Sequence[str], ellipsis: str) -> str:
    """The longest run of whole words that is in all `variants` and worth an ellipsis."""
    words = variants[0].split("-")
    runs = {
        "-".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    }
    common = [
        run
        for run in runs
        if len(run) >= _MIN_GAIN
        and ellipsis not in run
        and all(f"-{run}-" in f"-{variant}-" and run != variant for variant in variants)
    ]
    return max(common, key=lambda run: (len(run), run), default="")


def _without_run(variant: str, run: str, ellipsis: str) -> str:
    """The variant with an ellipsis, without dashes beside it, for the first such `run`."""
    before, _, after = f"-{variant}-".partition(f"-{run}-")
    return f"{before.removeprefix('-')}{ellipsis}{after.removesuffix('-')}"


def _without_common_beginning(names: Sequence[str], ellipsis: str) -> list[str]:
    """Replace what the names of different tests begin with, by whole words."""
    tests = {name.partition("[")[0] for name in names}
    head = _common_beginning([*tests], "_/:.") if len(tests) > 1 else ""
    if len(head) < _MIN_GAIN:
        return list(names)
    return [f"{ellipsis}{name.removeprefix(head)}" for name in names]


def _without_parameters_of_tests(names: Sequence[str], ellipsis: str) -> list[str]:
    """Replace what all parameters of a test have in common, test by test."""
    tests: dict[str, list[str]] = {}
    for name in names:
        tests.setdefault(name.partition("[")[0], []).append(name)
    shortened: dict[str, str] = {}
    for variants in tests.values():
        texts = _without_common_parameters(variants, ellipsis)
        shortened.update(zip(variants, texts, strict=True))
    return [shortened[name] for name in names]


def _without_first_parameters(names: Sequence[str], ellipsis: str, room: int) -> list[str]:
    """Drop first words of parameters until a name fits, where no other of its test ends alike."""
    ends = Counter(end for name in names for end in _ends(name))
    shortened = []
    for name in names:
        test = name.partition("[")[0]
        texts = (
            f"{test}[{ellipsis}{end[1].removeprefix(ellipsis)}"
            for end in _ends(name)
            if width(name) > room and ends[end] == 1
        )
        shortened.append(next((text for text in texts if width(text) <= room), name))
    return shortened


def _ends(name: str) -> list[tuple[str, str]]:
    """The name's test with each end of its parameters that begins with a word, longest first."""
    test, _, variant = name.partition("[")
    words = variant.split("-")
    return [(test, "-".join(words[start:])) for start in range(1, len(words))]


def _without_middle_parameters(names: Sequence[str], ellipsis: str, room: int) -> list[str]:
    """Cut the parameters of the names that are too long in the middle, those of a test alike."""
    variants: dict[str, list[str]] = {}
    for name in names:
        test, bracket, variant = name.partition("[")
        if bracket:
            variants.setdefault(test, []).append(variant)
    cut = {
        test: dict(zip(texts, shorten(texts, room - width(test) - 1, ellipsis), strict=True))
        for test, texts in variants.items()
        if room - width(test) - 1 >= _MIN_PARAMETERS
    }
    return [
        f"{test}[{cut[test][variant].replace(ellipsis * 2, ellipsis)}"
        if bracket and test in cut
        else name
        for name in names
        for test, bracket, variant in [name.partition("[")]
    ]


def _common_beginning(texts: Sequence[str], word_ends: str) -> str:
    """What all `texts` begin with, up to one of the characters `word_ends`; may be empty."""
    common = os.path.commonprefix([*texts])  # noqa: RUF071 # names are no paths
    return common[: max(map(common.rfind, word_ends)) + 1]


def _distinct(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The names `after` a step, but those `before` it if two have become the same."""
    return list(after if len(set(after)) == len(set(before)) else before)


def _numbered(names: Sequence[str]) -> list[str]:
    """The `names`, the second and later of the same with a number."""
    occurrences: Counter[str] = Counter()
    numbered = []
    for name in names:
        occurrences[name] += 1
        numbered.append(name if occurrences[name] == 1 else f"{name}#{occurrences[name]}")
    return numbered
