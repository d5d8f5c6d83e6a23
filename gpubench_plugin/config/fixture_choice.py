"""Whose fixture counts where another plugin has one by the name of one of gpubench's.

In a benchmark gpubench's does, elsewhere the other plugin's, as if gpubench were not installed;
pytest would take that of the plugin registered last. What the project defines, in a test module, a
conftest or a plugin that its conftest names, overrides either.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile
from types import SimpleNamespace
from typing import Any, Final

import pytest

from gpubench_plugin.config import parametrization
from gpubench_plugin.config.parametrization import is_own

FIXTURE_MODULES: Final = (
    "gpubench_plugin.bench.fixtures",
    "gpubench_plugin.bench.workload_fixtures",
)
_CONTESTED: Final = pytest.StashKey[dict[str, list[pytest.FixtureDef[Any]]]]()


def choose(item: pytest.Item) -> list[str]:
    """Choose the fixtures of `item`, before it is parametrized.

    Returns their names, less those of a benchmark that other plugins' hooks must not see, since
    they would parametrize them as their own.
    """
    information = getattr(item, "_fixtureinfo", None)  # of functions and doctests
    contested = _contested(item.session)
    if information is None or not contested:
        return getattr(item, "fixturenames", [])
    names, found = information.names_closure, information.name2fixturedefs
    is_adopted = parametrization.is_adopted(item, names)
    in_benchmark = parametrization.is_benchmark(item, names) and not is_adopted

    def definitions_of(name: str, node: pytest.Item) -> Any:
        defined = node.session._fixturemanager.getfixturedefs(name, node)
        if (others := contested.get(name)) is None:
            return defined
        return [d for d in defined or () if (d not in others if in_benchmark else not is_own(d))]

    choice = {name: definitions_of(name, item) for name in contested}
    own_names = {name for name, definitions in choice.items() if is_own(definitions[-1])}
    requested = {name for mark in item.iter_markers("usefixtures") for name in mark.args}
    autouse = own_names - requested - {*information.argnames}  # of another plugin
    names[:], definitions = type(item.session._fixturemanager).getfixtureclosure(
        SimpleNamespace(getfixturedefs=definitions_of),  # type: ignore[arg-type] # a stand-in
        parentnode=item,
        initialnames=tuple(name for name in information.initialnames if name not in autouse),
        ignore_args={*names}.difference(found),  # parameters
    )
    found.clear()
    is_shown = item.config.getoption("show_fixtures_per_test", False)
    found.update(definitions if is_shown else choice | definitions)  # for getfixturevalue
    item._initrequest()  # type: ignore[attr-defined] # pytest 9.0 has copied the definitions
    hidden = own_names.difference(parametrization.names_in(item.iter_markers("parametrize")))
    return [name for name in names if name not in hidden]


def overruled(config: pytest.Config) -> list[str]:
    """Line that names the other plugins' fixtures that do not count in benchmarks, if any."""
    contested = sorted(config.stash.get(_CONTESTED, {}).items())
    text = ", ".join(f"{name} ({d[-1].func.__module__.split('.')[0]})" for name, d in contested)
    return [f"gpubench: in its benchmarks these fixtures do not count: {text}"] * bool(text)


def _contested(session: pytest.Session) -> dict[str, list[pytest.FixtureDef[Any]]]:
    """Other plugins' definitions of fixtures by the names of gpubench's."""
    stash, plugins = session.config.stash, session.config.pluginmanager
    if _CONTESTED not in stash:
        registered = plugins.list_name_plugin()  # in order: a conftest before those it names
        project = dict(dropwhile(lambda entry: not entry[0].endswith("conftest.py"), registered))
        stash[_CONTESTED] = contested = {}
        for name in {n for module in FIXTURE_MODULES for n in dir(plugins.get_plugin(module))}:
            found = session._fixturemanager.getfixturedefs(name, session) or ()
            others = [d for d in found if not is_own(d) and not _is_in(project.values(), d)]
            if others and any(map(is_own, found)):
                contested[name] = others
    return stash[_CONTESTED]


def _is_in(plugins: Iterable[object], definition: pytest.FixtureDef[Any]) -> bool:
    fixtures = (getattr(p, getattr(definition.func, "__name__", ""), None) for p in plugins)
    return any(getattr(fixture, "__wrapped__", None) == definition.func for fixture in fixtures)
