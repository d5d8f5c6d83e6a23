"""Parametrization of benchmarks: precision × world size × device.

Benchmarks are always parametrized, so that their node ids do not depend on the options. Only those
that use a precision have it as a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from gpubench_plugin.config.settings import option_dest
from gpubench_plugin.core import catalog

if TYPE_CHECKING:
    import pytest

    from gpubench_plugin.config.settings import Settings

FIXTURE = "gpubench"
PRECISION = "precision"
FOREIGN_FIXTURE = "benchmark"
"""Name of pytest-benchmark's fixture, and of its plugin."""
PRECISION_LEFT: Final = "ids contain a precision only if the benchmark uses one"
"""Reason for a changed node id."""


def is_benchmark(item: pytest.Item, fixturenames: Iterable[str]) -> bool:
    """Whether `item` is a benchmark: it requests the fixture, has the mark, or is adopted."""
    names = frozenset(fixturenames)
    has_mark = item.get_closest_marker(FIXTURE) is not None
    return FIXTURE in names or has_mark or is_adopted(item, names)


def uses_precision(item: pytest.Item) -> bool:
    """Whether the benchmark or one of its fixtures requests ``precision``."""
    return PRECISION in fixture_names(item)


def fixture_names(item: pytest.Item) -> tuple[str, ...]:
    """Names of all fixtures of `item`, direct and indirect; empty for non-functions."""
    return tuple(getattr(item, "fixturenames", ()))


def overriding_fixture(item: pytest.Item, name: str) -> Callable[..., object] | None:
    """Function of the project's fixture `name` that stands for gpubench's in `item`; None if none.

    pytest tells in no public way which fixture of a name it chooses: it is the last.
    """
    information = getattr(item, "_fixtureinfo", None)  # of functions
    definitions = information.name2fixturedefs.get(name) if information else None
    function: Callable[..., object] | None = definitions[-1].func if definitions else None
    is_ours = function is None or function.__module__.startswith("gpubench_plugin.")
    return None if is_ours else function


def is_adopted(item: pytest.Item, fixturenames: Iterable[str]) -> bool:
    """Whether `item` is a pytest-benchmark test included by ``--adopt``.

    It keeps its node id: it gets no parameters.
    """
    config = item.config
    if not config.getoption(option_dest("adopt"), default=False):
        return False
    names = frozenset(fixturenames)
    if FOREIGN_FIXTURE not in names or FIXTURE in names:
        return False
    return bool(config.pluginmanager.hasplugin(FOREIGN_FIXTURE))


def parametrize(metafunc: pytest.Metafunc, settings: Settings, world_size: int | None) -> None:
    """Parametrize a benchmark, leaving alone names that it parametrizes itself.

    `world_size` is the only one if the ranks were started already, for example by torchrun.
    """
    definition = metafunc.definition
    if is_adopted(definition, metafunc.fixturenames):
        return
    own_names = set(_own_names(definition.iter_markers("parametrize")))

    def add(name: str, values: Iterable[str], ids: Iterable[str] | None = None) -> None:
        if name in metafunc.fixturenames and name not in own_names:
            metafunc.parametrize(name, list(values), ids=ids, indirect=True)

    add(PRECISION, _precisions(definition, settings))
    if definition.get_closest_marker(FIXTURE) and "world_size" not in metafunc.fixturenames:
        metafunc.fixturenames.append("world_size")  # a marked test always runs on ranks
    sizes = (
        (world_size,) if world_size else settings.world_sizes or _default_world_sizes(definition)
    )
    add("world_size", map(str, sizes), ids=[f"ws{size}" for size in sizes])
    if len(settings.devices) > 1:
        add("torch_device", settings.devices)


def supports(item: pytest.Item, precision: str) -> bool:
    """Whether the benchmark's ``precision`` mark, if any, allows `precision`."""
    supported = _supported_precisions(item)
    return not supported or precision in supported


def _precisions(definition: pytest.Item, settings: Settings) -> tuple[str, ...]:
    return settings.precisions or _supported_precisions(definition) or settings.default_precisions


def _default_world_sizes(item: pytest.Item) -> tuple[int, ...]:
    """Default world sizes of a benchmark."""
    from gpubench_plugin.config.marks import BenchmarkMark
    from gpubench_plugin.core.errors import UsageProblem

    try:
        return BenchmarkMark.of(item).world_sizes
    except UsageProblem:
        return (1,)  # a bad mark is refused after collection, if the benchmark is selected


def _supported_precisions(item: pytest.Item) -> tuple[str, ...]:
    mark = item.get_closest_marker("precision")
    return tuple(map(str, mark.args)) if mark else ()


def _own_names(marks: Iterable[pytest.Mark]) -> Iterable[str]:
    for mark in marks:
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        yield from (n.strip() for n in names.split(",")) if isinstance(names, str) else names


def former_ids(old_ids: Iterable[str], new_ids: Iterable[str]) -> Mapping[str, str]:
    """Old id for each id in `new_ids` that differs only by a named precision.

    Earlier versions named a precision in every id, also of benchmarks that use none. Of several old
    ids the first counts; one that is also among `new_ids` belongs to another benchmark.
    """
    old_unique, new_unique = dict.fromkeys(old_ids), dict.fromkeys(new_ids)
    added = new_unique.keys() - old_unique.keys()
    former_by_new: dict[str, str] = {}
    for old_id in old_unique if added else ():
        if old_id not in new_unique:
            for candidate in _without_precision(old_id):
                if candidate in added:
                    former_by_new.setdefault(candidate, old_id)
    return former_by_new


def _without_precision(node_id: str) -> Iterator[str]:
    """``test_a[8-ws1]`` from ``test_a[8-fp32-ws1]``."""
    test, bracket, variant = node_id.partition("[")
    parts = f"-{variant.removesuffix(']')}-" if bracket else ""
    for precision in catalog.choices("precision"):
        head, separator, tail = parts.partition(f"-{precision}-")
        if separator:
            remaining = f"{head}-{tail}".removeprefix("-").removesuffix("-")
            yield f"{test}[{remaining}]" if remaining else test
