"""What the steps of single operations call: those timed as kernels must wait for nothing."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench_plugin.config.sections import MicroSection
from gpubench_plugin.core.errors import Unsupported
from tests.support.micro_suite import benchmarks

WAITS = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero"}
"""Operations whose result the host needs: on a device it waits for them."""

MOST_OPERATIONS = 100
"""Of a step that is timed as a kernel; about a thousand launches fit into the queue of a device."""


class Operations(TorchDispatchMode):
    """Names of the operations called, views left out."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        if not func.is_view:
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class Bench:
    """Runs a step once, with its setup, and keeps the operations of the step."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, step: Any, *, setup: Any = None, **_: object) -> None:
        if setup is not None:
            setup()
        with Operations() as operations:
            step()
        self.names = operations.names

    def record(self, name: str, value: object, **_: object) -> None: ...


def kernels() -> list[Any]:
    """The suite's operations that are timed as kernels, in each of their variants."""
    cases = []
    for name, test in benchmarks():
        if any(mark.kwargs.get("timing") == "kernel" for mark in test.pytestmark):
            params = [mark.args for mark in test.pytestmark if mark.name == "parametrize"]
            values = [[getattr(v, "values", (v,))[0] for v in choices] for _, choices in params]
            for chosen in product(*values):
                arguments = dict(zip([argument for argument, _ in params], chosen, strict=True))
                cases.append(pytest.param(test, arguments, id="-".join([name, *chosen])))
    return cases


@pytest.mark.parametrize(("test", "arguments"), kernels())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_kernels_are_few_and_wait_for_nothing(
    test: Any, arguments: dict[str, str], dtype: torch.dtype
) -> None:
    """No result comes back to the host in a step, and its launches leave room in the queue."""
    sizes = MicroSection(
        matrix_size=16, batch=2, channels=4, image_size=8, heads=2, tokens=16, head_size=8
    )
    bench = Bench()
    fixtures = {
        "gpubench": bench,
        "torch_device": torch.device("cpu"),
        "sizes": sizes,
        "dtype": dtype,
        "tolerance": 1.0,
        "fp8_products": None,
        **arguments,
    }
    try:
        test(**{name: fixtures[name] for name in inspect.signature(test).parameters})
    except Unsupported as reason:
        pytest.skip(f"not on a CPU: {reason}")
    assert WAITS.isdisjoint(bench.names)
    assert 0 < len(bench.names) <= MOST_OPERATIONS
