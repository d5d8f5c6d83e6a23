"""What every source of batches keeps, a newcomer's included."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.config.sections import DataSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.training.data._loading import held_out_rows
from gpubench_plugin.training.data.saved import save
from gpubench_plugin.training.data.synthetic import Synthetic

CPU = torch.device("cpu")
every_source = pytest.mark.parametrize("name", catalog.choices("data"))


@pytest.fixture
def source(slope, binary_cifar, tmp_path):
    """Makes the source of a name: `images` of a small archive, `saved` of a synthetic batch."""
    sources = []

    def make(name, **arguments):
        path = {"images": binary_cifar, "saved": tmp_path / "inputs.pt"}.get(name)
        if name == "saved":
            assert save(path, Synthetic(slope, device=CPU, **arguments)) == ""
        section = DataSection(source=name, path=path and str(path))
        made = catalog.load("data", name)(slope, section=section, device=CPU, **arguments)
        sources.append(made)
        return made

    yield make
    for made in sources:
        made.close()


@every_source
def test_gives_batches_of_the_asked_size_without_end(name, source):
    """Every batch has the size asked for, also past the end of an epoch."""
    made = source(name, batch_size=400)
    beyond = (made.steps_per_epoch or 1) + 1
    assert {400} == {len(next(made).inputs) for _ in range(beyond)}
    assert made.batch_size == 400
    assert iter(made) is made


@every_source
def test_ranks_have_their_own_batches(name, source):
    """Two ranks of one seed do not see the same batch."""
    first, second = (source(name, batch_size=8, world_size=2, rank=rank) for rank in range(2))
    assert not first.fixed_batch().inputs.equal(second.fixed_batch().inputs)


@every_source
def test_batches_follow_the_seed(name, source):
    """A source is a function of its arguments: another seed gives another order."""
    first, second, other = (next(source(name, batch_size=8, seed=n)).inputs for n in (5, 5, 6))
    assert (first.equal(second), first.equal(other)) == (True, False)


@every_source
def test_batches_are_converted(name, source):
    """The conversion of a precision reaches the fixed batch, the iterator's, and those held out."""
    made = source(
        name, batch_size=8, convert=lambda batch: batch._replace(inputs=batch.inputs.bfloat16())
    )
    batches = [next(made), made.fixed_batch(), *made.held_out()]
    assert {torch.bfloat16} == {batch.inputs.dtype for batch in batches}


@every_source
def test_restart_begins_anew(name, source):
    """After a restart the same batches come as at first, also from the middle of an epoch."""
    made = source(name, batch_size=8)
    first = [next(made).inputs.clone() for _ in range(3)]
    made.restart()
    assert all(next(made).inputs.equal(before) for before in first)


@pytest.mark.slow
@every_source
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_held_out_samples_belong_to_one_rank_each(name, world_size, source):
    """Ranks have equally many held-out batches, which together are those of one process."""
    ranks = [
        [
            batch.inputs
            for batch in source(name, batch_size=7, world_size=world_size, rank=rank).held_out()
        ]
        for rank in range(world_size)
    ]
    whole = [batch.inputs for batch in source(name, batch_size=10_000).held_out()]
    if name in {"synthetic", "saved"}:
        assert whole == []
        return
    assert len({len(batches) for batches in ranks}) == 1
    together = torch.cat([batch for batches in ranks for batch in batches])
    assert _rows(together) == _rows(torch.cat(whole))


@every_source
def test_held_out_samples_do_not_depend_on_the_seed(name, source):
    """What is held out is the same in every run."""
    ones, others = (list(source(name, batch_size=50, seed=seed).held_out()) for seed in (1, 2))
    assert all(
        one.inputs.equal(other.inputs) and one.targets.equal(other.targets)
        for one, other in zip(ones, others, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "training", "held_out"), [("digits", 1438, 359), ("diabetes", 354, 88)]
)
def test_every_row_is_trained_on_or_held_out(name, training, held_out, source, slope):
    """The parts of a table have the sizes stated, and together every row of the file once."""
    table = source(name, batch_size=8).read(slope)
    assert (len(table.training[0]), len(table.held_out[0])) == (training, held_out)
    trained, others = held_out_rows(training + held_out)
    assert sorted([*trained, *others]) == list(range(training + held_out))


def test_more_ranks_than_samples_are_refused(source):
    """A rank without samples is refused, with the number there are."""
    with pytest.raises(UsageProblem, match=r"source=diabetes: .* 355 ranks; allowed: at most 354"):
        source("diabetes", batch_size=1, world_size=355)


@pytest.mark.parametrize("key", [{"path": "somewhere"}, {"workers": 2}, {"pin_memory": False}])
def test_keys_of_a_loader_are_refused_elsewhere(key, slope):
    """A source that loads nothing refuses the keys of the section that say how to."""
    section = DataSection(source="digits", **key)
    with pytest.raises(UsageProblem, match=rf"data\.{next(iter(key))}=.* data\.source=images"):
        catalog.load("data", "digits")(slope, section=section, batch_size=8, device=CPU)


def test_source_that_cannot_begin_anew_is_unsupported(slope):
    """A source without a restart says so where one is asked for, and holds nothing out."""

    class Once(catalog.load("data", "synthetic").__mro__[1]):
        def __next__(self):
            return None

        def fixed_batch(self):
            return None

    made = Once(slope, batch_size=1, device=CPU)
    assert (made.held_out(), made.description(), made.close()) == ((), {}, None)
    with pytest.raises(Unsupported, match="Once: this data source cannot restart"):
        made.restart()


def _rows(inputs):
    return sorted(map(tuple, inputs.flatten(1).tolist()))
