"""The shipped table of diabetes patients."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.training.data.diabetes import (
    FEATURES,
    FEATURES_SHA256,
    TARGETS,
    TARGETS_SHA256,
    Diabetes,
    read_diabetes,
)
from gpubench_plugin.workloads.base import Batch

CPU = torch.device("cpu")


def test_files_are_those_of_the_readme():
    """The hashes that reading asks for stand beside the files, in their README."""
    readme = (FEATURES.parent / "README.md").read_text()
    assert FEATURES_SHA256 in readme
    assert TARGETS_SHA256 in readme


def test_reads_442_patients():
    """The first patient is 59 years old, of 150 points a year later; the means are the known."""
    features, targets = read_diabetes()
    assert (features.shape, targets.shape) == ((442, 10), (442,))
    assert (features[0].tolist(), targets[0]) == (
        [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87],
        151.0,
    )
    assert targets.mean() == pytest.approx(152.13, abs=0.01)


@pytest.mark.parametrize("which", ["features", "targets"])
def test_changed_file_is_refused(which, tmp_path):
    """A file with another hash is an error that names it and both hashes."""
    original, sha256 = {
        "features": (FEATURES, FEATURES_SHA256),
        "targets": (TARGETS, TARGETS_SHA256),
    }[which]
    changed = tmp_path / original.name
    changed.write_bytes(original.read_bytes() + b"\0")
    message = rf"{re.escape(str(changed))}: sha256 is [0-9a-f]{{64}} instead of {sha256}: not"
    with pytest.raises(GpubenchError, match=message):
        read_diabetes(**{which: changed})


def test_missing_file_is_an_error(tmp_path):
    """A file that is not there is an error that says what to do."""
    with pytest.raises(GpubenchError, match=r"No such file .*: reinstall pytest-gpubench"):
        read_diabetes(tmp_path / "nothing")


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
