"""A run's files with their hashes."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from gpubench_plugin.results.prune import artifacts
from tests.support.runs_builder import write_run

if TYPE_CHECKING:
    from pathlib import Path


def test_every_regular_file_is_listed_with_its_hash(tmp_path: Path) -> None:
    """Also those in folders; one whose hash is not wanted is not read, were it ever so large."""
    run = write_run(tmp_path, 0)
    (run.path / "traces").mkdir()
    (run.path / "traces" / "rank0.json").write_bytes(b"x" * (3 << 20))
    with (run.path / "huge").open("wb") as file:
        file.truncate(1 << 43)
    found = {each.name: each for each in artifacts(run, lambda _, size: size < 1 << 30)}
    assert [*found] == [
        *("config_resolved.yaml", "huge", "metrics.jsonl", "summary.json", "system.json"),
        "traces/rank0.json",
    ]
    assert found["traces/rank0.json"].bytes == 3 << 20
    huge = found.pop("huge")
    assert (huge.bytes, huge.sha256) == (1 << 43, None)
    for name, artifact in found.items():
        assert artifact.sha256 == sha256((run.path / name).read_bytes()).hexdigest()
