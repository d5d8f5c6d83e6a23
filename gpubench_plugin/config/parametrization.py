"""Which cases a benchmark has: precision × world size × device, as pytest parameters.

Always parametrized, also by default, so that a benchmark keeps its node id however it is run. The
precision is a parameter of those that use it alone: else an id would name one that nothing has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from gpubench_plugin import catalog
from gpubench_plugin.config.options import destination

if TYPE_CHECKING:
    import pytest

    from gpubench_plugin.config.settings import Settings

FIXTURE = "gpubench"
PRECISION = "precision"
FOREIGN_FIXTURE = "benchmark"
"""The fixture of pytest-benchmark, and the name of the plugin that it belongs to."""
PRECISION_LEFT: Final = "ids name a precision only where it is used"
"""Why an id is another one now."""


def is_benchmark(item: pytest.Item, fixturenames: Iterable[str]) -> bool:
    """Whether `item` is one of ours: it asks for the fixture, carries the mark, or is adopted."""
    names = frozenset(fixturenames)
    marked = item.get_closest_marker(FIXTURE) is not None
    return FIXTURE in names or marked or is_adopted(item, names)


def uses_precision(item: pytest.Item) -> bool:
    """Whether the benchmark, or a fixture it asks for, asks for ``precision``: directly or not."""
    return PRECISION in fixture_names(item)


def fixture_names(item: pytest.Item) -> tuple[str, ...]:
    """The fixtures that `item` asks for, also through others; of what is no function, none."""
    return tuple(getattr(item, "fixturenames", ()))


def is_adopted(item: pytest.Item, fixturenames: Iterable[str]) -> bool:
    """Whether `item` was written for pytest-benchmark, and ``--adopt`` makes it count.

    It keeps its node id: it gets no parameters.
    """
    config = item.config
    if not config.getoption(destination("adopt"), default=False):
        return False
    names = frozenset(fixturenames)
    if FOREIGN_FIXTURE not in names or FIXTURE in names:
        return False
    return bool(config.pluginmanager.hasplugin(FOREIGN_FIXTURE))


def parametrize(metafunc: pytest.Metafunc, settings: Settings, joined: int | None) -> None:
    """Give a benchmark its cases; leave every name that it parametrizes itself alone.

    `joined` is the number of ranks where somebody else, torchrun say, has started them: then there
    is no other world size.
    """
    definition = metafunc.definition
    if is_adopted(definition, metafunc.fixturenames):
        return
    own = set(_own_names(definition.iter_markers("parametrize")))

    def add(name: str, values: Iterable[str], ids: Iterable[str] | None = None) -> None:
        if name in metafunc.fixturenames and name not in own:
            metafunc.parametrize(name, list(values), ids=ids, indirect=True)

    add(PRECISION, _precisions(definition, settings))
    if definition.get_closest_marker(FIXTURE) and "world_size" not in metafunc.fixturenames:
        metafunc.fixturenames.append("world_size")  # a marked test runs on ranks in any case
    sizes = (joined,) if joined else settings.world_sizes or _asked_for(definition)
    add("world_size", map(str, sizes), ids=[f"ws{size}" for size in sizes])
    if len(settings.devices) > 1:
        add("torch_device", settings.devices)


def offers(item: pytest.Item, precision: str) -> bool:
    """Whether the benchmark's ``precision`` mark, if any, names `precision`."""
    offered = _offered(item)
    return not offered or precision in offered


def _precisions(definition: pytest.Item, settings: Settings) -> tuple[str, ...]:
    return settings.precisions or _offered(definition) or settings.default_precisions


def _asked_for(item: pytest.Item) -> tuple[int, ...]:
    """The world sizes a benchmark runs on where the command line names none."""
    from gpubench_plugin.config.marks import BenchmarkMark
    from gpubench_plugin.errors import UsageProblem

    try:
        return BenchmarkMark.of(item).world_sizes
    except UsageProblem:
        return (1,)  # a bad mark is refused after collection, if the benchmark is selected at all


def _offered(item: pytest.Item) -> tuple[str, ...]:
    mark = item.get_closest_marker("precision")
    return tuple(map(str, mark.args)) if mark else ()


def _own_names(marks: Iterable[pytest.Mark]) -> Iterable[str]:
    for mark in marks:
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        yield from (n.strip() for n in names.split(",")) if isinstance(names, str) else names


def former_ids(old: Iterable[str], new: Iterable[str]) -> Mapping[str, str]:
    """By id of `new`, the one of `old` that is the same but for a precision it names.

    Earlier versions named a precision in every id, also of benchmarks that use none. The first of
    several; none where both have the id, or the old one is among `new` as well: then
    it is another benchmark.
    """
    before, now = dict.fromkeys(old), dict.fromkeys(new)
    lost = now.keys() - before.keys()
    former_by_new: dict[str, str] = {}
    for former in before if lost else ():
        if former not in now:
            for shorter in _without_precision(former):
                if shorter in lost:
                    former_by_new.setdefault(shorter, former)
    return former_by_new


def _without_precision(node_id: str) -> Iterator[str]:
    """``test_a[8-ws1]`` of ``test_a[8-fp32-ws1]``."""
    test, bracket, variant = node_id.partition("[")
    parts = f"-{variant.removesuffix(']')}-" if bracket else ""
    for precision in catalog.choices("precision"):
        before, named, after = parts.partition(f"-{precision}-")
        if named:
            rest = f"{before}-{after}".removeprefix("-").removesuffix("-")
            yield f"{test}[{rest}]" if rest else test
