"""Disks that are full or cannot be written to, records to write, and which tests start nothing."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.records import Measurement, Metric, RunRecord, Samples, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


_STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen")
_started: list[str] = []
sys.addaudithook(lambda event, arguments: _started.append(event) if event in _STARTS else None)


@pytest.fixture(autouse=True)
def _starts_no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of ``tox -e quick`` that starts a process: it is to be marked ``slow``.

    Among all tests one may be the first to ask for what is found out once by a process, git's
    version for example, which a slow one asked for before.
    """
    _started.clear()
    yield
    if _started and "not slow" in request.config.option.markexpr:
        pytest.fail(f"{', '.join(_started)}: mark the test slow")


def _mount(folder: Path, options: str) -> None:
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    _mount(folder, "size=2m")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def fill_up() -> Callable[[Path], None]:
    """Writes into a folder until its disk is full."""

    def fill(folder: Path) -> None:
        filler = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
        with suppress(OSError):
            while os.write(filler, bytes(4096)):
                pass
        os.close(filler)
        assert shutil.disk_usage(folder).free == 0

    return fill


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that not even root can write into."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o500)
    if not os.access(folder, os.W_OK):
        yield folder
        folder.chmod(0o700)
        return
    _mount(folder, "ro")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def files_end_at() -> Callable[[int], AbstractContextManager[None]]:
    """Inside it no file can grow beyond a number of bytes: the kernel takes a part, then errs."""

    @contextmanager
    def limit(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit


@pytest.fixture
def measured() -> Callable[..., Measurement]:
    """Makes a measured benchmark; keywords replace its fields."""

    def make(**fields: Any) -> Measurement:
        samples = Samples(
            timer="perf_counter",
            durations_s=(0.011, 0.010, 0.012),
            block_s=(0.033,),
            block_calls=(3,),
            first_step_s=0.5,
            warmup_s=(0.02,),
            warmup_calls=1,
        )
        record = {
            "id": "benchmarks/training/test_mlp.py::test_mlp_train[amp]",
            "name": "test_mlp_train",
            "params": {"precision": "amp", "world_size": "1"},
            "world_size": 1,
            "outcome": "measured",
            "configuration": {
                "experiment": {"preset": "tiny"},
                "precision": {"name": "amp"},
                "measure": {"by": "ci"},
            },
            "work": Work(samples=8.0, flops=1e9),
            "samples": samples,
            "metrics": {
                "step_time_s": Metric(name="step_time_s", value=0.011, unit="s", better="lower"),
                "samples_per_s": Metric(
                    name="samples_per_s", value=727.25, unit="samples/s", better="higher"
                ),
            },
            "flags": ("unsteady",),
            "correctness": {"loss_last": 0.25},
        }
        return Measurement(**{**record, **fields})

    return make


@pytest.fixture
def run_record(measured: Callable[..., Measurement]) -> Callable[..., RunRecord]:
    """Makes a complete run of one measured benchmark; keywords replace its fields."""

    def make(**fields: Any) -> RunRecord:
        record = {
            "run_id": "20260131T120000Z_run_0a1b2c",
            "experiment": "default",
            "status": "complete",
            "started": "2026-01-31T12:00:00.000000Z",
            "finished": "2026-01-31T12:00:09.500000Z",
            "command": ("benchmarks", "-k", "mlp"),
            "environment": {"hostname": "here"},
            "benchmarks": (measured(),),
        }
        return RunRecord(**{**record, **fields})

    return make
