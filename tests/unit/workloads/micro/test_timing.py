"""Which single operations are timed without their launches, and with an overwritten cache."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.micro_suite import benchmarks

KERNELS = {
    "test_attention",
    "test_conv2d",
    "test_copy_device",
    "test_layout_elementwise",
    "test_layout_matmul",
    "test_matmul",
    "test_matmul_fp8",
    "test_norm",
}
"""A few kernels each, which wait for nothing."""

STEPS = {
    # Threads and hooks of the host are what is compared.
    "test_backward",
    # Pageable memory is copied while the host waits.
    "test_copy_host",
    # The launch is what is measured.
    "test_launch",
    # One of the implementations is hundreds of kernels, whose launches are its cost.
    "test_optimizer",
    # One of the validations waits for the device.
    "test_validation",
}

COLD = {
    "test_copy_device",
    "test_layout_elementwise",
    "test_matmul",
    "test_matmul_fp8",
    "test_norm",
}


def marks(test: Any, name: str) -> list[pytest.Mark]:
    return [mark for mark in test.pytestmark if mark.name == name]


def test_every_operation_has_the_timing_that_suits_it() -> None:
    """Single kernels are timed without launches; steps that wait or are launches are not."""
    timings = {
        name: marks(test, "gpubench")[0].kwargs.get("timing", "step") for name, test in benchmarks()
    }
    assert timings == dict.fromkeys(KERNELS, "kernel") | dict.fromkeys(STEPS, "step")


def test_cold_cases_are_those_of_kernels_bound_by_memory_or_products() -> None:
    """Each has a case with an overwritten cache, and one without another name than before."""
    cases = {
        name: [
            (case.values, case.id, [mark.args for mark in case.marks])
            for mark in marks(test, "parametrize")
            if mark.args[0] == "cache"
            for case in mark.args[1]
        ]
        for name, test in benchmarks()
    }
    both = [
        (("hot",), pytest.HIDDEN_PARAM, []),
        (("cold",), None, [("measure.cache=cold",)]),
    ]
    assert {name: values for name, values in cases.items() if values} == dict.fromkeys(COLD, both)
