"""The marks a benchmark may carry, validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gpubench_plugin.errors import UsageProblem, nearest, not_one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

Ranks = int | tuple[int, ...] | str


@dataclass(frozen=True, kw_only=True)
class BenchmarkMark:
    """The arguments of ``pytest.mark.gpubench``."""

    config: str | None = None
    ranks: Ranks = 1
    limits: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None

    @classmethod
    def of(cls, node: pytest.Item) -> BenchmarkMark:
        """The closest mark of `node`, or the default one.

        What a mark of the node's parameters says stands above it, argument by argument.

        Raises:
            UsageProblem: an argument is unknown or of the wrong type.
        """
        others, of_parameters = _marks(node, "gpubench")
        where = f"{node.nodeid}: mark gpubench"
        said: dict[str, Any] = {}
        for each in (*others[:1], *of_parameters):
            if each.args:
                raise UsageProblem(f"{where}: takes keyword arguments only, got {each.args!r}")
            said.update(each.kwargs)
        allowed = [f.name for f in fields(cls)]
        for name in said:
            if name not in allowed:
                raise not_one_of(f"{where}: argument", name, allowed)
        made = cls(**{k: v for k, v in said.items() if v is not None})
        made._check(where)
        return made

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The world sizes it runs on when none is asked for: all that it names, else the least."""
        if isinstance(self.ranks, str):
            return (self._least,)
        return (self.ranks,) if isinstance(self.ranks, int) else self.ranks

    def fits(self, world_size: int) -> bool:
        """Whether the benchmark runs on that many ranks."""
        if isinstance(self.ranks, str):
            return world_size >= self._least
        return world_size in self.world_sizes

    @property
    def _least(self) -> int:
        """Of 'any' or '>=N'."""
        return 1 if self.ranks == "any" else max(1, int(str(self.ranks).removeprefix(">=")))

    def _check(self, where: str) -> None:
        if not _is_ranks(self.ranks):
            raise UsageProblem(
                f"{where}: ranks={self.ranks!r}; allowed: an int from 1, a tuple of them, "
                "'any' or '>=N'"
            )
        if not isinstance(self.config, str | None):
            raise UsageProblem(f"{where}: config={self.config!r}; allowed: a configuration's name")
        if not isinstance(self.limits, Mapping):
            raise UsageProblem(f"{where}: limits={self.limits!r}; allowed: {{metric: limit}}")
        if self.timeout_s is not None and not (
            isinstance(self.timeout_s, int | float) and self.timeout_s > 0
        ):
            raise UsageProblem(f"{where}: timeout_s={self.timeout_s!r}; allowed: seconds above 0")


def _marks(node: pytest.Item, name: str) -> tuple[list[pytest.Mark], list[pytest.Mark]]:
    """The marks of `node` called so, the closest first; and those that its parameters carry.

    pytest has the latter behind those of the function, though they say more of the one case.
    """
    callspec = getattr(node, "callspec", None)
    of_parameters = [mark for mark in getattr(callspec, "marks", ()) if mark.name == name]
    known = set(map(id, of_parameters))
    return [mark for mark in node.iter_markers(name) if id(mark) not in known], of_parameters


def assignments(node: pytest.Item) -> tuple[str, ...]:
    """What the ``gpubench_set`` marks of `node` set, outermost first, its parameters last.

    Raises:
        UsageProblem: an argument is not of the form ``key=value``.
    """
    others, of_parameters = _marks(node, "gpubench_set")
    found = tuple(argument for mark in (*others[::-1], *of_parameters) for argument in mark.args)
    for text in found:
        if not isinstance(text, str) or "=" not in text:
            raise UsageProblem(f"{node.nodeid}: mark gpubench_set: {text!r} is not 'key=value'")
    return found


def full_profile_only(node: pytest.Item, precision: str) -> bool:
    """Whether a ``gpubench_full`` mark of `node` keeps it, in `precision`, out of quick runs."""
    return any(
        not mark.args or precision in mark.args for mark in node.iter_markers("gpubench_full")
    )


def check_precisions(node: pytest.Item, allowed: Iterable[str]) -> None:
    """Refuse a ``precision`` or ``gpubench_full`` mark that names a precision there is not.

    Raises:
        UsageProblem: naming the mark, the value and what is allowed.
    """
    for mark in node.iter_markers("precision"):
        for name in mark.args:
            if name not in allowed:
                raise not_one_of(f"{node.nodeid}: mark precision", str(name), allowed)
        if mark.kwargs or not mark.args:
            hint = nearest("names", mark.kwargs)
            raise UsageProblem(f"{node.nodeid}: mark precision takes names only{hint}")
    for mark in node.iter_markers("gpubench_full"):
        for name in mark.args:
            if name not in allowed:
                raise not_one_of(f"{node.nodeid}: mark gpubench_full", str(name), allowed)
        if mark.kwargs:
            raise UsageProblem(f"{node.nodeid}: mark gpubench_full takes names of precisions only")


def _is_ranks(ranks: object) -> bool:
    if isinstance(ranks, bool):
        return False
    if isinstance(ranks, int):
        return ranks >= 1
    if isinstance(ranks, tuple):
        return bool(ranks) and all(_is_ranks(n) and isinstance(n, int) for n in ranks)
    return ranks == "any" or (
        isinstance(ranks, str) and ranks.startswith(">=") and ranks[2:].isdecimal()
    )
