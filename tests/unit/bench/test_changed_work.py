"""Whether a step does other work after its timing, by three looks before it and five after."""

from __future__ import annotations

from itertools import chain, repeat

import pytest
import torch
from torch import nn

from gpubench_plugin.bench.changed_work import lasting_answer, same_work
from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.ranks.agreement import RankAgreement

ALONE = RankAgreement()


@pytest.mark.parametrize(
    ("widths", "tells"),
    [
        ([8, 8, 8, 4], "FLOPs"),
        ([8, 8, 8, 8], ""),
        ([8, 4, 8, 4], ""),  # it varies by itself, as the next one
        ([8, 8, 4, 4], ""),
    ],
)
def test_step_is_asked_where_its_three_looks_agree(widths: list[int], tells: str) -> None:
    """By the operations of the next one, of that many columns."""
    columns = iter(widths)

    def step() -> None:
        n = next(columns)
        torch.ones(4, n) @ torch.ones(n, 4)

    question = same_work(step, nn.Linear(1, 1), ALONE, counts=True)
    try:
        question()
        said = ""
    except CorrectnessError as error:
        said = str(error)
    assert tells in said
    assert bool(said) is bool(tells)


@pytest.mark.parametrize(
    ("answers", "alike", "lasting"),
    [
        (["a"] * 5, False, "a"),
        (["a", "b", "c", "d", "e"], False, "a"),
        (["a", "b", "c", "d", "e"], True, ""),
        (["a", "a", "a", "a", ""], False, ""),
        (["", "a", "a", "a", "a"], False, ""),
    ],
)
def test_only_what_five_calls_tell_lasts(answers: list[str], alike: bool, lasting: str) -> None:
    """Once one tells nothing no more are asked."""
    asked = chain(answers, repeat("unasked"))

    def question() -> None:
        if answer := next(asked):
            raise CorrectnessError(answer)

    assert lasting_answer(question, ALONE, alike=alike) == lasting
