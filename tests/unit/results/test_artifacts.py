"""A run's files with their hashes."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from gpubench_plugin.results.prune import artifacts
from tests.support.runs_builder import write_run

if TYPE_CHECKING:
    from pathlib import Path


def test_every_regular_file_is_listed_with_its_hash(tmp_path: Path) -> None:
    """Also those in folders."""
    run = write_run(tmp_path, 0)
    (run.path / "traces").mkdir()
    (run.path / "traces" / "rank0.json").write_bytes(b"x" * (3 << 20))

    artifacts_by_name = {
        artifact.name: artifact for artifact in artifacts(run, lambda name, size: True)
    }
    assert list(artifacts_by_name) == sorted(artifacts_by_name)
    assert set(artifacts_by_name) == {
        "config_resolved.yaml",
        "metrics.jsonl",
        "summary.json",
        "system.json",
        "traces/rank0.json",
    }
    assert artifacts_by_name["traces/rank0.json"].bytes == 3 << 20
    for artifact in artifacts_by_name.values():
        assert artifact.sha256 == sha256((run.path / artifact.name).read_bytes()).hexdigest()


def test_a_file_whose_hash_is_not_wanted_is_listed_without_it(tmp_path: Path) -> None:
    """It is not read: its size is the file system's, were it larger than any memory."""
    run = write_run(tmp_path, 0)
    with (run.path / "huge").open("wb") as file:
        file.truncate(1 << 43)

    artifacts_by_name = {
        artifact.name: artifact for artifact in artifacts(run, lambda name, size: size < 1 << 30)
    }

    assert (artifacts_by_name["huge"].bytes, artifacts_by_name["huge"].sha256) == (1 << 43, None)
    assert all(artifact.sha256 for name, artifact in artifacts_by_name.items() if name != "huge")
