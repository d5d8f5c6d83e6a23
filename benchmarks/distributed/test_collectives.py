"""Collectives over a sweep of message sizes, with algorithm and bus bandwidth.

Sizes and bandwidths are those of nccl-tests, whose document derives the factor that takes one to
the other: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

import pytest

from gpubench_plugin.core import catalog


@pytest.mark.parametrize(
    "size",
    [
        pytest.param("1KiB", marks=pytest.mark.gpubench_full),
        "64KiB",
        pytest.param("1MiB", marks=pytest.mark.gpubench_full),
        "4MiB",
        "64MiB",
        "1GiB",
    ],
)
@pytest.mark.parametrize("name", catalog.choices("collectives"))
@pytest.mark.gpubench(config="collectives", ranks=">=2")
def test_collective(gpubench, collective, name, size):
    """One collective of all ranks, verified on each."""
    gpubench(collective(name, size))
