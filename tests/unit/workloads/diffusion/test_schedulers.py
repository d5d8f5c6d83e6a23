"""Schedulers whose steps may be split: proven by splitting them."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config.sections import SCHEDULERS, DiffusionSection
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.diffusion.denoising import SPLIT_SAFE, NoiseSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.workloads.diffusion.pipeline import DenoisingPipeline

CPU = torch.device("cpu")


def split(pipeline: DenoisingPipeline, latents: Any, *bounds: int) -> Any:
    """The latents after steps taken in parts, each by a scheduler that begins there."""
    denoise = pipeline.denoising
    with torch.inference_mode():
        for start, stop in pairwise(bounds):
            latents = denoise(latents, sample=0, steps=range(start, stop))
    return latents


@pytest.mark.parametrize("name", SPLIT_SAFE)
def test_split_anywhere_is_the_whole(
    name: str, make_pipeline: Callable[..., DenoisingPipeline]
) -> None:
    """Wherever ranks may part, the last bits are those of one process."""
    pipeline = make_pipeline(scheduler=name)
    latents, total = pipeline._latents[0], pipeline._total
    whole = split(pipeline, latents, 0, total)
    assert bool(whole.isfinite().all())
    assert not torch.equal(whole, latents)
    for bound in range(1, total):
        if bound % SPLIT_SAFE[name].evaluations_per_step == 0:
            assert torch.equal(whole, split(pipeline, latents, 0, bound, total)), bound


def test_heun_within_a_step_is_something_else(
    make_pipeline: Callable[..., DenoisingPipeline],
) -> None:
    """Between its two evaluations Heun keeps a derivative, so ranks may not part there."""
    pipeline = make_pipeline(scheduler="heun")
    latents, total = pipeline._latents[0], pipeline._total
    assert total == 7  # of 4 steps all but the last have two evaluations
    whole = split(pipeline, latents, 0, total)
    assert not torch.equal(whole, split(pipeline, latents, 0, 3, total))


@pytest.mark.parametrize("name", [name for name, kind in SPLIT_SAFE.items() if kind.draws_noise])
def test_noise_of_a_step_is_its_own(
    name: str, make_pipeline: Callable[..., DenoisingPipeline]
) -> None:
    """Samples and seeds differ in the noise that steps draw, and repeat it."""
    denoise = make_pipeline(scheduler=name, samples=2).denoising
    latents, steps = torch.zeros(1, 4, 8, 8), range(1)
    # The same text, so that only the noise can make a difference.
    denoise._texts = (denoise._texts[0], denoise._texts[0])
    with torch.inference_mode():
        first, again = (denoise(latents, sample=0, steps=steps) for _ in range(2))
        second = denoise(latents, sample=1, steps=steps)
    assert (torch.equal(first, again), torch.equal(first, second)) == (True, False)


@pytest.mark.parametrize("name", sorted(SCHEDULERS.keys() - SPLIT_SAFE.keys()))
def test_scheduler_with_a_history_is_unsupported(name: str) -> None:
    """The reason and what is allowed are said."""
    with pytest.raises(Unsupported, match=f"{name}: .* network outputs of earlier steps.* lcm"):
        NoiseSchedule(name, steps=4, beta_schedule={}, device=CPU)


@pytest.mark.parametrize(("name", "library_class"), SCHEDULERS.items())
def test_class_names_of_diffusers_are_understood(name: str, library_class: str) -> None:
    """Whoever knows the class need not know our name; the record has ours."""
    assert DiffusionSection(scheduler=library_class).scheduler == name
    assert DiffusionSection(scheduler=name).scheduler == name


def test_steps_that_a_scheduler_refuses_are_unsupported() -> None:
    """LCM cannot take more steps than it was distilled from."""
    with pytest.raises(Unsupported, match=r"denoising_steps=200: rejected by lcm"):
        NoiseSchedule("lcm", steps=200, beta_schedule={}, device=CPU)


def test_missing_diffusers_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the benchmark is skipped, and what to install is said."""
    monkeypatch.setitem(sys.modules, "diffusers", None)
    said = r"diffusion.scheduler=ddim requires diffusers.*pip install 'pytest-gpubench\[suite\]'"
    with pytest.raises(Unsupported, match=said):
        NoiseSchedule("ddim", steps=4, beta_schedule={}, device=CPU)
