"""The shipped play."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest
import torch

from gpubench_plugin.core.errors import GpubenchError, Unsupported, UsageProblem
from gpubench_plugin.training.data.text import SHA256, TEXT, Text, read_text
from gpubench_plugin.workloads.base import Batch, Workload

CPU = torch.device("cpu")


@pytest.fixture
def windows(slope):
    """The small workload, seeing whole windows of eight characters."""
    slope.tokens_per_sample = 8
    slope.from_text = lambda tokens: Batch(tokens[:, :-1], tokens[:, 1:])
    return slope


def test_file_is_the_one_of_the_readme():
    """The hash that reading asks for stands beside the file, in its README."""
    assert SHA256 in (TEXT.parent / "README.md").read_text()


def test_reads_125179_characters():
    """The play has 68 different characters, numbered in the order of their codes."""
    tokens, text = read_text(), gzip.decompress(TEXT.read_bytes())
    assert len(tokens) == 125_179
    assert np.unique(tokens).tolist() == list(range(68))
    alphabet = bytes(sorted(set(text)))
    assert bytes(alphabet[token] for token in tokens[:200]) == text[:200]


def test_changed_file_is_refused(tmp_path):
    """A file with another hash is an error that names the file and both hashes."""
    changed = tmp_path / "asyoulik.txt.gz"
    changed.write_bytes(gzip.compress(b"Once upon a time"))
    message = rf"{re.escape(str(changed))}: sha256 is [0-9a-f]{{64}} instead of {SHA256}: not"
    with pytest.raises(GpubenchError, match=message):
        read_text(changed)


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
