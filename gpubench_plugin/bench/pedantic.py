"""Steps as ``benchmark.pedantic`` of pytest-benchmark has them, whose setup may make arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpubench_plugin.bench.step import TimedStep, call_of, short_repr
from gpubench_plugin.core.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.measure.protocols import Subject


def pedantic_step(
    target: object, args: Any, kwargs: Any, setup: Any, teardown: Any, subjects: Sequence[Subject]
) -> TimedStep:
    """`target` with its arguments, which `setup` may return and `teardown` gets as well.

    Raises:
        Misuse: `target` is no function of these arguments. Calls of the step, too, raise it for
            what `setup` returns.
    """
    call = own_call = partial(call_of(target, subjects)[0], *args, **kwargs)

    def prepare() -> None:
        nonlocal call
        returned = setup()
        if returned and (args or kwargs):
            raise Misuse("gpubench.pedantic: args or kwargs beside a setup that returns some")
        try:
            own_args, own_kwargs = returned or ((), {})
            call = partial(own_call, *own_args, **own_kwargs)
        except (TypeError, ValueError):
            problem = f"setup returned {short_repr(returned)}; allowed: None, or (args, kwargs)"
            raise Misuse(f"gpubench.pedantic: {problem}") from None

    return TimedStep.of(
        (lambda: call()) if setup else own_call,  # noqa: PLW0108 # that of the round
        setup=prepare if setup else None,
        teardown=(lambda: teardown(*call.args, **call.keywords)) if teardown else None,
    )
