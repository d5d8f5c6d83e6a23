"""The shipped digits."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.training.data.digits import DIGITS, SHA256, Digits, read_digits

CPU = torch.device("cpu")


def targets(source, batches):
    return [label for _ in range(batches) for label in next(source).targets.flatten().tolist()]


def test_file_is_the_one_of_the_readme():
    """The hash that reading asks for stands beside the file, in its README."""
    assert SHA256 in (DIGITS.parent / "README.md").read_text()


def test_reads_1797_images_from_0_to_1():
    """All images are there, with values from 0 to 1 and labels from 0 to 9, as UCI counts them."""
    images, labels = read_digits()
    assert ((1797, 1, 8, 8), np.float32, 0.0, 1.0) == (
        images.shape,
        images.dtype,
        images.min(),
        images.max(),
    )
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_changed_file_is_refused(tmp_path):
    """A file with another hash is an error that names the file and both hashes."""
    changed = tmp_path / "digits.csv.gz"
    changed.write_bytes(DIGITS.read_bytes()[:-1])
    message = rf"{re.escape(str(changed))}: sha256 is [0-9a-f]{{64}} instead of {SHA256}: not"
    with pytest.raises(GpubenchError, match=message):
        read_digits(changed)


def test_ranks_share_the_data_without_overlap(slope):
    """Two ranks' batches together are those of one process with the global batch."""
    ranks = [
        Digits(slope, batch_size=100, device=CPU, world_size=2, rank=rank, seed=3)
        for rank in range(2)
    ]
    one = Digits(slope, batch_size=200, device=CPU, seed=3)
    assert [source.steps_per_epoch for source in (*ranks, one)] == [8, 8, 8]
    for _ in range(7):
        parts = [next(source).inputs for source in ranks]
        assert torch.stack(parts, dim=1).flatten(0, 1).equal(next(one).inputs)


def test_wraps_around(slope):
    """The last batch of an epoch is filled from its beginning, and the next epoch repeats it."""
    source = Digits(slope, batch_size=1000, device=CPU)
    assert source.steps_per_epoch == 2
    epoch, again = targets(source, 2), targets(source, 2)
    assert epoch[:562] == epoch[1438:]
    assert epoch == again


def test_every_digit_is_held_out(slope):
    """About a fifth of each digit's images is held out."""
    _, held_out = Digits(slope, batch_size=8, device=CPU).read(slope)
    assert all(25 <= count <= 47 for count in np.bincount(held_out[1]))


def test_order_follows_the_seed(slope):
    """The same seed gives the same order, another seed another."""
    first, again, other = (
        targets(Digits(slope, batch_size=50, device=CPU, seed=seed), 1) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_fixed_batch_stays_while_the_iterator_goes_on(slope):
    """The fixed batch is an epoch's first, however far the iterator is."""
    source = Digits(slope, batch_size=10, device=CPU)
    before = source.fixed_batch()
    assert next(source).targets.equal(before.targets)
    next(source)
    assert source.fixed_batch().targets.equal(before.targets)
