"""Fixtures of a project that have the name of one of gpubench's, and what ours may read of them.

A fixture that returns what ours would is an override. Anything else belongs to the project, and is
refused where a fixture of gpubench would read it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

from gpubench_plugin.config.parametrization import overriding_fixture

if TYPE_CHECKING:
    import pytest

_KINDS: Final = {
    "data": "gpubench_plugin.training.data.base.DataSource",
    "model": "torch.nn.Module",
    "precision": "gpubench_plugin.precision.Precision",
    "process_group": "gpubench_plugin.ranks.process_group.ProcessGroup",
    "torch_device": "torch.device",
    "trainer": "gpubench_plugin.training.trainer.Trainer",
    "workload": "gpubench_plugin.workloads.Workload",
}
"""Class of the values by fixture name."""


def require_kinds(request: pytest.FixtureRequest, **values: object) -> None:
    """Refuse `values` of fixtures, by name, that are not of the class that gpubench reads.

    Raises:
        Misuse: naming the fixture, its value's type and the file it is defined in.
    """
    for name, value in values.items():
        module, _, kind = _KINDS[name].rpartition(".")
        if not isinstance(value, getattr(import_module(module), kind)):
            raise _refusal(
                request, name, f"a value of type {type(value).__name__}", f"a {_KINDS[name]}"
            )


def require_value(request: pytest.FixtureRequest, name: str, value: object, own: object) -> None:
    """Refuse a `value` of the fixture `name` other than gpubench's `own`, which ids are named by.

    Raises:
        Misuse: naming the fixture, its value and the file it is defined in.
    """
    if value != own:
        raise _refusal(request, name, repr(value), repr(own))


def is_shadowed(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether the benchmark's fixture `name` is the project's rather than gpubench's."""
    return overriding_fixture(request.node, name) is not None


def _refusal(request: pytest.FixtureRequest, name: str, value: str, own: str) -> Exception:
    from gpubench_plugin.core.errors import Misuse

    remedy = "rename the project's"
    if name == "precision":
        remedy += ', or select precisions with @pytest.mark.precision("bf16")'
    reader = request.fixturename or request.node.name
    return Misuse(
        f"{_origin(request, name)} has {value}, but gpubench's fixture "
        f"{reader.removeprefix('_gpubench_')!r} reads {own} by that name; {remedy}"
    )


def _origin(request: pytest.FixtureRequest, name: str) -> str:
    """What of the project has the `name`: a fixture with its file and line, or a parameter."""
    function = overriding_fixture(request.node, name)
    code = getattr(function, "__code__", None)
    if code is None or function is None or function.__module__.startswith("_pytest"):
        return f"the parameter {name!r}"
    file = code.co_filename.removeprefix(f"{request.config.rootpath}{os.sep}")
    return f"the project's fixture {name!r} ({file}:{code.co_firstlineno})"
