"""The bundled data sets: digits, patients, a play."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from gpubench_plugin.core.errors import GpubenchError, Unsupported, UsageProblem
from gpubench_plugin.training.data import _in_memory
from gpubench_plugin.training.data._in_memory import DATASETS, SHA256, read_gzip
from gpubench_plugin.training.data.diabetes import Diabetes, read_diabetes
from gpubench_plugin.training.data.digits import Digits, read_digits
from gpubench_plugin.training.data.text import Text, read_text
from gpubench_plugin.workloads.base import Batch, Workload

CPU = torch.device("cpu")


@pytest.mark.parametrize(("name", "sha256"), SHA256.items())
def test_only_the_file_of_the_readme_is_read(name, sha256, tmp_path, monkeypatch):
    """Its hash stands in the README; another file is an error that names it and both hashes."""
    assert sha256 in (DATASETS / "README.md").read_text()
    other = tmp_path / name
    other.write_bytes((DATASETS / name).read_bytes() + b"\0")
    monkeypatch.setattr(_in_memory, "DATASETS", tmp_path)
    message = rf"{re.escape(str(other))}: sha256 is [0-9a-f]{{64}} instead of {sha256}: not"
    with pytest.raises(GpubenchError, match=message):
        read_gzip(name)


def targets(source, batches):
    return [label for _ in range(batches) for label in next(source).targets.flatten().tolist()]


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


def test_reads_442_patients():
    """The first patient is 59 years old, of 150 points a year later; the means are the known."""
    features, targets = read_diabetes()
    assert (features.shape, targets.shape) == ((442, 10), (442,))
    assert (features[0].tolist(), targets[0]) == (
        [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87],
        151.0,
    )
    assert targets.mean() == pytest.approx(152.13, abs=0.01)


def test_normalised_by_those_to_train_on(slope):
    """Features and targets to train on have mean 0 and variance 1; those held out nearly so."""
    table = Diabetes(slope, batch_size=8, device=CPU).read(slope)
    for column in table.training:
        assert np.allclose(column.mean(0), 0, atol=1e-5)
        assert np.allclose(column.std(0), 1, atol=1e-5)
    assert 0.05 < abs(table.held_out[0].mean(0)).max() < 0.5


def test_batches_are_what_the_workload_makes_of_rows(slope):
    """All ten features and the target of a patient reach the workload."""
    seen = []
    slope.from_table = lambda features, targets: (
        seen.append((features.shape, targets.shape)) or Batch(features, targets)
    )
    batch = next(Diabetes(slope, batch_size=8, device=CPU))
    assert batch.inputs.shape == (8, 10)
    assert seen == [((45 * 8, 10), (45 * 8,))]


@pytest.fixture
def windows(slope):
    """The small workload, seeing whole windows of eight characters."""
    slope.tokens_per_sample = 8
    slope.from_text = lambda tokens: Batch(tokens[:, :-1], tokens[:, 1:])
    return slope


def test_reads_125179_characters():
    """The play has 68 different characters, numbered in the order of their codes."""
    tokens, text = read_text(), read_gzip("asyoulik.txt.gz").encode()
    assert len(tokens) == 125_179
    assert np.unique(tokens).tolist() == list(range(68))
    alphabet = bytes(sorted(set(text)))
    assert bytes(alphabet[token] for token in tokens[:200]) == text[:200]


def test_windows_lie_side_by_side(windows):
    """Each window begins with the last target of the one before, and targets follow inputs."""
    (column,), (held_out,) = Text(windows, batch_size=4, device=CPU).read(windows)
    tokens = read_text()
    assert column[:3].tolist() == [tokens[i : i + 9].tolist() for i in (0, 8, 16)]
    assert held_out[0].tolist() == tokens[112_661:112_670].tolist()
    assert (len(column), len(held_out)) == (112_660 // 8, 12_517 // 8)
    batch = next(Text(windows, batch_size=4, device=CPU))
    assert batch.inputs[:, 1:].equal(batch.targets[:, :-1])


def test_windows_longer_than_what_is_held_out(windows):
    """Samples of which none could be held out are refused, with the longest there can be."""
    windows.tokens_per_sample = 12_518
    with pytest.raises(UsageProblem, match=r"allowed: model\.sequence_length up to 12517"):
        Text(windows, batch_size=1, device=CPU)


def test_model_without_text_is_unsupported(slope):
    """A workload that takes no text says so."""
    slope.from_text = lambda tokens: Workload.from_text(slope, tokens)
    with pytest.raises(Unsupported, match="slope is not a text model"):
        Text(slope, batch_size=4, device=CPU)
