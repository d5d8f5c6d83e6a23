"""What is asked of a step before its timing and again after it: whether it does the same work."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import CorrectnessError

if TYPE_CHECKING:
    from torch import nn

    from gpubench_plugin.bench.step import TimedStep
    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.ranks.agreement import RankAgreement

# Looks that must all be equal, and those that must all differ from them: of a step that draws its
# kind of work anew each time, at most 1.5% are called changed.
_BEFORE, _AFTER = 3, 5

_LONGEST_S: Final = 60.0
"""First step of which no further one is taken."""


def question_about(
    timed: TimedStep, first_s: float | None, agreement: RankAgreement, *, counts: bool
) -> Step:
    """What is to be asked of a subject's step, whose first one took `first_s`, after the timing.

    Every rank must call it. Three steps are taken, unless the first one took a minute.
    """
    module = getattr(timed.subject, "module", None)
    is_short = first_s is not None and first_s < _LONGEST_S
    if module is None or not agreement.decide(int(is_short)):
        return list
    return same_work(timed.run_briefly, module, agreement, counts=counts)


def same_work(step: Step, module: nn.Module, agreement: RankAgreement, *, counts: bool) -> Step:
    """Look at a `step` of the `module`; the call of what is returned raises where it changed.

    Every rank must call it. Operations are compared if it `counts`. Of a step that varies by itself
    nothing is asked.
    """
    from gpubench_plugin.measure.probes.operations import StepWork

    look = partial(StepWork.of, step, module, counts=counts)
    before: list[StepWork] = []
    for number in range(1, _BEFORE + 1):
        with suppress(Exception):  # as on tensors that cannot be watched
            work = look()
            work.require_equal(*before[:1] or [work])
            before.append(work)
        if not agreement.everywhere(len(before) == number):
            return list
    return lambda: look().require_equal(before[0])


def lasting_answer(question: Step, agreement: RankAgreement, *, alike: bool) -> str:
    """What the `question` first tells, if it tells something at each of five calls; else empty.

    They must be `alike` where what is asked may move by itself.
    """
    answers = []
    for _ in range(_AFTER):
        answer = ""
        try:
            question()
        except Exception as error:  # as a step may raise once it was timed
            answer = str(error) if isinstance(error, CorrectnessError) else ""
        answers.append(answer)
        if agreement.everywhere(not answer):
            break
    return answers[0] if all(answers) and (not alike or len({*answers}) == 1) else ""
