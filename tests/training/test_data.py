"""What every source of batches keeps, a newcomer's included."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin import catalog

CPU = torch.device("cpu")
every_source = pytest.mark.parametrize("name", catalog.choices("data"))


@every_source
def test_gives_batches_of_the_asked_size_without_end(name, slope):
    """Every batch has the size asked for, also past the end of an epoch."""
    source = catalog.load("data", name)(slope, batch_size=400, device=CPU)
    beyond = (source.steps_per_epoch or 1) + 1
    assert {400} == {len(next(source).inputs) for _ in range(beyond)}
    assert source.batch_size == 400
    assert iter(source) is source


@every_source
def test_ranks_have_their_own_batches(name, slope):
    """Two ranks of one seed do not see the same batch."""
    first, second = (
        catalog.load("data", name)(slope, batch_size=8, device=CPU, world_size=2, rank=rank)
        for rank in range(2)
    )
    assert not first.fixed_batch().inputs.equal(second.fixed_batch().inputs)


@every_source
def test_equal_arguments_give_equal_batches(name, slope):
    """A source is a function of its arguments."""
    first, second = (
        catalog.load("data", name)(slope, batch_size=8, device=CPU, seed=5) for _ in range(2)
    )
    assert next(first).inputs.equal(next(second).inputs)


@every_source
def test_batches_are_converted_beforehand(name, slope):
    """The conversion of a precision reaches the fixed batch and the iterator's."""
    source = catalog.load("data", name)(
        slope,
        batch_size=8,
        device=CPU,
        convert=lambda batch: batch._replace(inputs=batch.inputs.bfloat16()),
    )
    assert {torch.bfloat16} == {next(source).inputs.dtype, source.fixed_batch().inputs.dtype}
