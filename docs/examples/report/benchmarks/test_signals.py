"""The filters, on noise around a sine."""

import numpy as np
import pytest
import signals


def noisy(length):
    """A sine of 50 periods under noise, the same in every run."""
    noise = np.random.default_rng(0).normal(scale=0.3, size=length)
    return np.sin(np.linspace(0, 100 * np.pi, length)) + noise


@pytest.mark.parametrize("length", [20_000, 80_000])
def test_smooth(gpubench, length):
    signal = noisy(length)
    gpubench(lambda: signals.smooth(signal, 64), samples=length)


def test_peaks(gpubench):
    signal = noisy(80_000)
    gpubench(lambda: signals.peaks(signal, 0.5), samples=80_000)


def test_spectrum(gpubench):
    signal = noisy(65_536)
    gpubench(lambda: signals.spectrum(signal), samples=65_536)
