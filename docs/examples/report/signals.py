"""Filters of sampled signals."""

import numpy as np


def smooth(signal, width):
    """The mean of each window of `width` samples."""
    return np.convolve(signal, np.full(width, 1 / width), mode="valid")


def peaks(signal, floor):
    """Where the signal is above `floor` and both of its neighbours."""
    middle = signal[1:-1]
    return np.flatnonzero((middle > signal[:-2]) & (middle > signal[2:]) & (middle > floor)) + 1


def spectrum(signal):
    """The power of each frequency."""
    return np.abs(np.fft.rfft(signal * np.hanning(len(signal)))) ** 2
