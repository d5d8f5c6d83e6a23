"""Parametrization of benchmarks: precision × device × world size.

Only those that use a precision have it as a parameter. Node ids do not depend on the options, but
for the devices, where several are compared: one of N > 1 ranks ends in ``ranksN``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from gpubench_plugin.config.settings import Settings, option_dest

FIXTURE = "gpubench"
PRECISION = "precision"
DEVICE = "torch_device"
"""Fixture of all that uses torch."""
FOREIGN_FIXTURE = "benchmark"
"""Name of pytest-benchmark's fixture, and of its plugin."""
_BY_OPTIONS: Final = (PRECISION, "world_size", DEVICE)


def is_benchmark(item: pytest.Item, fixturenames: Iterable[str]) -> bool:
    """Whether `item` is a benchmark: it requests the fixture, has the mark, or is adopted.

    Without ``--adopt`` the mark changes nothing about a test of pytest-benchmark.
    """
    names = frozenset(fixturenames)
    is_marked = FOREIGN_FIXTURE not in names and item.get_closest_marker(FIXTURE) is not None
    return FIXTURE in names or is_marked or is_adopted(item, names)


def fixture_names(item: pytest.Item) -> tuple[str, ...]:
    """Names of all fixtures of `item`, direct and indirect; empty for non-functions."""
    return tuple(getattr(item, "fixturenames", ()))


def id_of(item: pytest.Item) -> str:
    """Id of `item` in records: pytest's node id, but for secrets, which its parameters may have.

    Such an id begins with the numbers of its values, so that no two become one, and neither a
    selection nor an option changes any.
    """
    from gpubench_plugin.environment.redaction import redact

    begin, _, text = item.nodeid.removesuffix("]").partition("[")
    if (shown := redact(text)) == text:
        return item.nodeid
    indices = getattr(getattr(item, "callspec", None), "indices", {})
    numbers = [f"{number}-" for name, number in indices.items() if name not in _BY_OPTIONS]
    return f"{begin}[{''.join(numbers)}{shown}]"


def overriding_fixture(item: pytest.Item, name: str) -> Callable[..., object] | None:
    """Function of the project's fixture `name` that stands for gpubench's in `item`; None if none.

    pytest tells in no public way which fixture of a name it chooses: it is the last.
    """
    information = getattr(item, "_fixtureinfo", None)  # of functions
    definitions = information.name2fixturedefs.get(name) if information else None
    return None if not definitions or is_own(definitions[-1]) else definitions[-1].func


def is_own(definition: pytest.FixtureDef[Any]) -> bool:
    """Whether the fixture is gpubench's."""
    return definition.func.__module__.startswith("gpubench_plugin.")


def namespaces(item: pytest.Item) -> Iterable[dict[str, object]]:
    """Namespaces of the modules of `item` and of the project's fixtures that it uses."""
    information = getattr(item, "_fixtureinfo", None)  # of functions
    definitions = information.name2fixturedefs.values() if information else ()
    chosen = (found[-1].func for found in definitions if found)
    for function in (getattr(item, "function", None), *chosen):
        module = getattr(function, "__module__", None) or "gpubench_plugin."
        if not module.startswith(("gpubench_plugin.", "_pytest.", "pytest_benchmark.")):
            yield getattr(function, "__globals__", {})


def displaced_by(config: pytest.Config) -> str:
    """The option that keeps pytest-benchmark's fixture from the tests; empty if none does.

    pytest-codspeed leaves the plugin registered, and has a fixture of its own in front.
    """
    if not config.pluginmanager.hasplugin(FOREIGN_FIXTURE):
        return "-p no:benchmark"
    codspeed = config.pluginmanager.get_plugin("codspeed_plugin")
    return "--codspeed" if getattr(codspeed, "is_codspeed_enabled", False) else ""


def is_adopted(item: pytest.Item, fixturenames: Iterable[str]) -> bool:
    """Whether `item` is a pytest-benchmark test included by ``--adopt``.

    It keeps its node id: it gets no parameters.
    """
    config = item.config
    if not config.getoption(option_dest("adopt"), default=False):
        return False
    names = frozenset(fixturenames)
    return FOREIGN_FIXTURE in names and FIXTURE not in names and not displaced_by(config)


def parametrize(metafunc: pytest.Metafunc, settings: Settings, world_size: int | None) -> None:
    """Parametrize a benchmark, leaving alone names that it parametrizes itself.

    `world_size` is the only one if the ranks were started already, for example by torchrun.
    """
    definition = metafunc.definition
    if is_adopted(definition, metafunc.fixturenames):
        return
    own_names = set(names_in(definition.iter_markers("parametrize")))

    def add(name: str, values: Iterable[object]) -> None:
        if name in metafunc.fixturenames and name not in own_names:
            metafunc.parametrize(name, list(values), indirect=True)

    supported = _supported_precisions(definition)
    add(PRECISION, settings.precisions or supported or settings.default_precisions)
    if definition.get_closest_marker(FIXTURE) and "world_size" not in metafunc.fixturenames:
        metafunc.fixturenames.append("world_size")  # a marked test always runs on ranks
    sizes = (
        (world_size,) if world_size else settings.world_sizes or _default_world_sizes(definition)
    )
    if len(settings.devices) > 1:
        if DEVICE not in metafunc.fixturenames:
            metafunc.fixturenames.append(DEVICE)
        add(DEVICE, settings.devices)
    # One rank shows in no id.
    ids = {size: f"ranks{size}" if size > 1 else pytest.HIDDEN_PARAM for size in sizes}
    add("world_size", (pytest.param(str(size), id=ids[size]) for size in sizes))


def supports(item: pytest.Item, precision: str) -> bool:
    """Whether the benchmark's ``precision`` mark, if any, allows `precision`."""
    supported = _supported_precisions(item)
    return not supported or precision in supported


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


def names_in(marks: Iterable[pytest.Mark]) -> Iterable[str]:
    """Names of the parameters that ``parametrize`` marks give."""
    for mark in marks:
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        yield from (n.strip() for n in names.split(",")) if isinstance(names, str) else names
