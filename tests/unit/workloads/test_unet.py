"""The denoising networks."""

from __future__ import annotations

import diffusers
import pytest
import torch
from torch._subclasses import FakeTensorMode

CPU = torch.device("cpu")
both = pytest.mark.parametrize("name", ["unet2d", "unet-cond"])


@both
def test_early_samples_are_nearly_clean_and_late_ones_noise(name, make_workload):
    """The noise to be found fills a sample more the later its time step is."""
    batch = make_workload(name, "tiny").synthetic_batch(
        64, device=CPU, generator=torch.Generator().manual_seed(0)
    )
    (times, *_), noise = batch.context, batch.targets
    likeness = torch.cosine_similarity(batch.inputs.flatten(1), noise.flatten(1))
    assert float(likeness[times < 100].max()) < 0.6
    assert float(likeness[times > 900].min()) > 0.95


def test_unet_cond_follows_its_text(make_workload):
    """Another text gives another prediction for the same latent image and time."""
    workload = make_workload("unet-cond", "tiny")
    module, batch = workload.build().eval(), workload.synthetic_batch(1, device=CPU)
    times, text = batch.context
    with torch.inference_mode():
        first = workload.forward(module, batch)
        other = workload.forward(module, batch._replace(context=(times, text + 1)))
    assert first.shape == batch.inputs.shape
    assert not torch.allclose(first, other)


def test_digits_are_noised_the_same_way_again(make_workload):
    """Grey images from 0 to 1 become three equal channels from -1 to 1, with noise that repeats."""
    workload = make_workload("unet2d", "tiny")
    images, labels = torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64)
    batch, again = (workload.from_images(images, labels) for _ in range(2))
    assert batch.inputs.shape == (4, 3, 16, 16)
    assert batch.inputs.equal(again.inputs)
    assert batch.targets.equal(again.targets)


def test_tables_of_noise_are_made_once(make_workload, monkeypatch):
    """Real images are noised while they are timed, so the schedule is not computed per batch."""
    made = []
    scheduler = diffusers.DDPMScheduler
    monkeypatch.setattr(
        diffusers, "DDPMScheduler", lambda **given: made.append(given) or scheduler(**given)
    )
    workload = make_workload("unet2d", "tiny")
    for _ in range(2):
        workload.from_images(torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64))
    with FakeTensorMode():
        workload.for_fake_tensors().synthetic_batch(2, device=CPU)
    assert made == [{}, {}]
