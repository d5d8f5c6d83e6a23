"""What is asked of a step before its timing and again after it: whether it does the same work."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import CorrectnessError

if TYPE_CHECKING:
    from torch import nn

    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.ranks.process_group import RankAgreement

# Looks that must tell the same difference: a step that varies by itself tells another each time.
_LOOKS = 3


def same_work(step: Step, module: nn.Module, agreement: RankAgreement, *, counts: bool) -> Step:
    """Look at a `step` of the `module` now; the call of what is returned raises where it changed.

    Every rank must call it. Operations are compared if it `counts`.
    """
    from gpubench_plugin.measure.probes.operations import StepWork

    look = partial(StepWork.of, step, module, counts=counts)
    before: list[StepWork] = []
    with suppress(Exception):  # as on tensors that cannot be watched
        before.append(look())
    is_known = agreement.everywhere(bool(before))
    return (lambda: look().require_equal(*before)) if is_known else list


def lasting_answer(question: Step, agreement: RankAgreement) -> str:
    """What all calls of the `question` tell alike; empty if nothing, or each another thing."""
    answers = set()
    for _ in range(_LOOKS):
        answer = ""
        try:
            question()
        except Exception as error:  # as a step may raise once it was timed
            answer = str(error) if isinstance(error, CorrectnessError) else ""
        answers.add(answer)
        if agreement.everywhere(not answer):
            break
    return answer if len(answers) == 1 else ""
