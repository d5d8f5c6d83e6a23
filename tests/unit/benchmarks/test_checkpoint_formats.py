"""Formats of checkpoints that are measured beside each other."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import distributed as dist

from benchmarks.system import checkpoint_formats
from benchmarks.system.checkpoint_formats import FORMATS, CheckpointIO
from gpubench_plugin.core.errors import CorrectnessError, ResultsError, Unsupported, UsageProblem

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
IN_THIS_PROCESS = [name for name in FORMATS if name not in {"dcp-thread", "dcp-process"}]


def tensors(**more):
    return {
        "weight": torch.randn(4, 3),
        "half": torch.randn(5).bfloat16(),
        "step": torch.tensor(3.0),
        **more,
    }


@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_what_is_written_is_read(name, tmp_path):
    """Every format gives back dtypes, shapes and values, counts the bytes, and can write again."""
    made = CheckpointIO(name, tensors(), tmp_path)
    made.verify()
    assert (made.bytes, made.blocking_s) == (4 * 3 * 4 + 5 * 2 + 4, [])
    made.remove()
    made.save()
    assert made.load()["step"] == 3.0
    assert len(made.blocking_s) == 1
    made.remove()
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import os
import sys
from pathlib import Path
import torch
from torch import distributed as dist
from benchmarks.system.checkpoint_formats import CheckpointIO
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
made = CheckpointIO("dcp-thread", {"weight": torch.randn(4, 3)}, Path(sys.argv[1]))
made.verify()
print("verified", flush=True)
os._exit(0)  # gloo's threads sometimes abort a process that ends right after their work
"""


@pytest.mark.slow
def test_background_thread_writes_the_same(tmp_path):
    """DCP in the background needs a process group, and gives back what was written."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]
    assert said == ["verified"], done.stderr  # gloo of torch 2.10 tells of its peers


@pytest.mark.parametrize("name", ["dcp-thread", "dcp-process"])
def test_background_over_nccl_is_unsupported(name, tmp_path, monkeypatch):
    """Torch would fail by an assertion; the reason says which key to set."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    with pytest.raises(Unsupported, match=r"gloo .*, not nccl: set distributed\.backend=gloo"):
        CheckpointIO(name, tensors(), tmp_path).verify()


def test_safetensors_refuse_what_is_not_contiguous(tmp_path):
    """A layout that the format cannot hold is unsupported, with the tensor and what to do."""
    turned = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    with pytest.raises(Unsupported, match=r"conv .* \[48, 1, 12, 3\]; .*channels_last=false"):
        CheckpointIO("safetensors", tensors(conv=turned), tmp_path).verify()
    CheckpointIO("torch-save", tensors(conv=turned), tmp_path).verify()  # keeps strides


def test_safetensors_refuse_shared_memory(tmp_path):
    """Tied weights are unsupported with the library's own reason."""
    shared = torch.randn(4)
    with pytest.raises(Unsupported, match=r"safetensors: .*share memory"):
        CheckpointIO("safetensors", {"a": shared, "b": shared}, tmp_path).verify()


def test_missing_package_is_unsupported(tmp_path, monkeypatch):
    """Without safetensors the reason says what to install."""
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(Unsupported, match=r"pip install 'pytest-gpubench\[suite\]'"):
        CheckpointIO("safetensors", tensors(), tmp_path).verify()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda t: t.half(), "weight is float32 .* in the checkpoint, but float16"),
        (lambda t: t + 1, "weight has other values"),
        (lambda t: t.t().contiguous().t(), r"weight is .* of strides \[3, 1\] in the checkpoint"),
    ],
)
def test_what_a_format_changes_is_found(spoil, said, tmp_path, monkeypatch):
    """A cast, another value or another layout fails before anything is measured."""
    read = checkpoint_formats.TorchSave.read

    def spoiled(self, like, path):
        found = read(self, like, path)
        return {**found, "weight": spoil(found["weight"])}

    monkeypatch.setattr(checkpoint_formats.TorchSave, "read", spoiled)
    with pytest.raises(CorrectnessError, match=said):
        CheckpointIO("torch-save", tensors(), tmp_path).verify()


def test_exception_of_dcp_is_an_ordinary_error(tmp_path):
    """What DCP raises past ``except Exception`` arrives as an error with its reason."""
    made = CheckpointIO("dcp", tensors(), tmp_path)
    with pytest.raises(ResultsError, match=r"torch\.distributed\.checkpoint: .*metadata"):
        made.load()


def test_unknown_format_is_refused(tmp_path):
    """The nearest name and all that there are."""
    with pytest.raises(UsageProblem, match="did you mean 'torch-save'"):
        CheckpointIO("torch-saev", tensors(), tmp_path)
