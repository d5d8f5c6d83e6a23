"""Evaluation on held-out samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, UsageProblem
from gpubench_plugin.precision.single import FP32
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.evaluation import Evaluation, Evaluator, check_evaluation
from gpubench_plugin.workloads.base import Batch
from tests.unit.training.conftest import Together

CPU = torch.device("cpu")


class HeldOut:
    """Data of which only the held-out part matters."""

    def __init__(self, *batches):
        self.batches = batches

    def held_out(self):
        return iter(self.batches)


def evaluator(module, workload, *batches, precision=None, agreement=None):
    return Evaluator(
        module=module,
        workload=workload,
        data=HeldOut(*batches),
        precision=precision or FP32(),
        device=CPU,
        agreement=agreement or RankAgreement(),
    )


def classifier(*logits):
    """A workload that classifies; its model gives each input its row of `logits`."""
    kind = catalog.load("workloads", "mlp")
    workload = kind(kind.Section(name="mlp", classes=3))
    table = nn.Embedding.from_pretrained(torch.tensor(logits))
    return workload, table


def test_loss_and_accuracy_are_means_over_samples():
    """Batches of different size count by their samples."""
    workload, module = classifier([2.0, 0, 0], [0, 2.0, 0])
    batches = (
        Batch(torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1])),
        Batch(torch.tensor([1]), torch.tensor([1])),
    )
    found = evaluator(module, workload, *batches).evaluate()
    right, wrong = (
        float(nn.functional.cross_entropy(torch.tensor([[2.0, 0, 0]]), torch.tensor([target])))
        for target in (0, 1)
    )
    assert found.accuracy == 0.75
    assert found.loss == pytest.approx((3 * right + wrong) / 4)
    assert found.metrics == {"test_loss": found.loss, "test_accuracy": 0.75}


def test_ranks_find_the_same_of_unequal_shares():
    """Sums of losses, of right ones and of samples are shared, not means of means."""
    workload, module = classifier([2.0, 0, 0])
    own = Batch(torch.tensor([0, 0, 0]), torch.tensor([0, 0, 0]))
    found = evaluator(module, workload, own, agreement=Together([10.0, 0.0, 1.0])).evaluate()
    alone = evaluator(module, workload, own).evaluate()
    assert found.accuracy == 0.75
    assert found.loss == pytest.approx((3 * alone.loss + 10) / 4)


def test_regression_has_no_accuracy(slope):
    """Of a model that does not classify there is the loss alone."""
    module = nn.Linear(2, 1)
    inputs = torch.randn(4, 2)
    found = evaluator(module, slope, Batch(inputs, module(inputs).detach() + 2)).evaluate()
    assert (found.accuracy, found.loss) == (None, pytest.approx(4.0))
    assert list(found.metrics) == ["test_loss"]


@pytest.mark.parametrize("training", [True, False])
def test_model_is_in_eval_mode_without_gradients(training, slope):
    """While it is evaluated the model is in eval mode, and then in the mode it was in."""
    seen = []
    module = nn.Linear(2, 1).train(training)
    slope.distort = lambda value, one: seen.append((one.training, value.requires_grad)) or value
    batch = Batch(torch.randn(4, 2), torch.randn(4, 1))
    evaluator(module, slope, batch).evaluate()
    assert (seen, module.training) == ([(False, False)], training)


def test_evaluates_in_the_precision(slope):
    """The forward pass runs where the precision says."""
    seen = []
    slope.distort = lambda value, _: seen.append(torch.is_autocast_enabled("cpu")) or value
    bf16 = catalog.load("precision", "bf16")()
    batch = Batch(torch.randn(4, 2), torch.randn(4, 1))
    evaluator(nn.Linear(2, 1), slope, batch, precision=bf16).evaluate()
    assert seen == [True]


def test_loss_that_is_not_finite_is_an_error(slope):
    """NaN on held-out samples is refused, and the model is put back into its mode."""
    module = nn.Linear(2, 1).train()
    batch = Batch(torch.full((4, 2), float("nan")), torch.zeros(4, 1))
    with pytest.raises(CorrectnessError, match="the loss on held-out samples is nan"):
        evaluator(module, slope, batch).evaluate()
    assert module.training


def test_nothing_held_out_is_refused(slope):
    """Data without a held-out part are refused with those that have one."""
    with pytest.raises(UsageProblem, match=r"no held-out samples .* data\.source=digits"):
        evaluator(nn.Linear(2, 1), slope)


def test_after_training_goes_on_record_untimed():
    """As a part of a benchmark it evaluates once, before anything is timed."""
    events, calls = [], []

    def evaluate():
        calls.append(1)
        return Evaluation(loss=0.5, accuracy=0.9)

    check = check_evaluation(evaluate, events.append)
    expected = {"test_loss": 0.5, "test_accuracy": 0.9}
    assert (check.facts, check.correctness) == (expected, {"evaluation": expected})
    assert events == [{"event": "evaluation", **expected}]
    assert calls == [1]
