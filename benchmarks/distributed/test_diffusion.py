"""Diffusion inference with its denoising steps split over the ranks; on one rank the plain loop.

Every output is compared, bit by bit, with what one process computes. With more samples the filling
of the pipeline costs less: `pipeline_efficiency` says how near it comes to M·w/(M + w - 1).
"""

import pytest


def case(unet, samples):
    """The case with those keys; a quick run on a CPU leaves out what lies between two others."""
    marks = [pytest.mark.gpubench_set(f"model.unet={unet}", f"diffusion.samples={samples}")]
    if samples in {2, 4}:
        marks.append(pytest.mark.gpubench_full())
    return pytest.param(unet, samples, marks=marks)


@pytest.mark.parametrize(
    ("unet", "samples"),
    [case(unet, samples) for unet in ("dummy", "conditional") for samples in (1, 2, 4, 8)],
)
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="diffusion", ranks="any")
def test_unet_denoising(gpubench, diffusion, unet, samples):
    """Samples through all denoising steps, one after the other."""
    gpubench(diffusion, setup=diffusion.meet)
