"""Steps and rounds as ``benchmark.pedantic`` of pytest-benchmark has them, and no further call."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.bench.step import TimedStep, call_of, short_repr
from gpubench_plugin.bench.subjects import reconfigure, running_state
from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.errors import Misuse

if TYPE_CHECKING:
    import pytest

    from gpubench_plugin.measure.loop import Variant

_UNKNOWN_S: Final = 60.0
"""Assumed of a call that was not warmed up."""


def pedantic_step(target: object, args: Any, kwargs: Any, setup: Any, teardown: Any) -> TimedStep:
    """`target` with its arguments, which `setup` may return and `teardown` gets as well.

    Raises:
        Misuse: `target` is no function of these arguments. Calls of the step, too, raise it for
            what `setup` returns.
    """
    arguments = args, kwargs = (*args,), {**kwargs}
    function = call_of(target)[0]
    call = own_call = partial(function, *args, **kwargs)

    def prepare() -> None:
        nonlocal call, arguments
        returned = setup()
        if returned and (args or kwargs):
            raise Misuse("gpubench.pedantic: args or kwargs beside a setup that returns some")
        try:
            arguments = own_args, own_kwargs = returned or (args, kwargs)
            call = partial(function, *own_args, **own_kwargs)
        except (TypeError, ValueError):
            problem = f"setup returned {short_repr(returned)}; allowed: None, or (args, kwargs)"
            raise Misuse(f"gpubench.pedantic: {problem}") from None

    return TimedStep.of(
        (lambda: call()) if setup else own_call,  # noqa: PLW0108 # that of the round
        setup=prepare if setup else None,
        teardown=(lambda: teardown(*arguments[0], **arguments[1])) if teardown else None,
    )


def require_counts(rounds: int, iterations: int, warmup_rounds: int, *, has_setup: bool) -> None:
    """Refuse numbers of calls that cannot be made.

    Raises:
        Misuse: naming the number, and what is allowed.
    """
    counts = {"rounds": rounds, "iterations": iterations, "warmup_rounds": warmup_rounds}
    for name, count in counts.items():
        least, is_one = int(name != "warmup_rounds"), has_setup and name == "iterations"
        if not isinstance(count, int) or count < least or (is_one and count > 1):
            allowed = "1 beside a setup" if is_one else f"an int from {least}"
            raise Misuse(f"gpubench.pedantic: {name}={short_repr(count)}; allowed: {allowed}")


def fix_rounds(request: pytest.FixtureRequest, rounds: int, calls: int, warmup: int) -> None:
    """Make `rounds` of so many `calls`, after `warmup` others like them."""
    state = running_state(request)
    configuration, of_warmup = state.case.configuration, {"warmup_iterations": warmup * calls}
    own = {**of_warmup, "warmup_max_s": 1e-6, "by": "steps", "steps": rounds * calls}
    section = configuration.measure.model_copy(update=own)
    reconfigure(request, configuration.model_copy(update={"measure": section}))
    fixed = FixedRounds(rounds=rounds, durations_per_round=1, calls_per_duration=calls)
    state.case = replace(state.case, fixed_rounds=fixed)


def warmed_up(variant: Variant, calls: int) -> Variant:
    """The `variant` after so many `calls`, which tell how long one takes."""
    seconds = (variant.clock.time_single_call(variant.task) for _ in range(calls))
    return replace(variant, first_call_s=min(seconds, default=_UNKNOWN_S))
