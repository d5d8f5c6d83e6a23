"""Writing and reading checkpoints: the tensors of a model and of its AdamW, in several formats.

The files lie below pytest's ``--basetemp``: choose the file system with it.
"""

from statistics import median

import pytest

# Asynchronous DCP is for nightly runs: its process imports torch again, and gloo sometimes aborts a
# session that ends right after its thread. It requires gloo on CUDA, too.
background = [pytest.mark.gpubench_full(), pytest.mark.gpubench_set("distributed.backend=gloo")]
writing = pytest.mark.parametrize(
    "form",
    [
        "torch-save",
        "safetensors",
        "dcp",
        pytest.param("dcp-thread", marks=background),
        pytest.param("dcp-process", marks=background),
    ],
)
reading = pytest.mark.parametrize("form", ["torch-save", "safetensors", "dcp"])


def verified_checkpoint(form, model, folder):
    """Checkpoint of `model` and its optimizer in a format, after a verified write and read."""
    import torch

    from .checkpoint_formats import CheckpointIO

    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in state.items()}
    checkpoint = CheckpointIO(form, tensors, folder)
    checkpoint.verify()
    return checkpoint


@writing
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="mlp")
def test_checkpoint_save(gpubench, model, tmp_path, form):
    """Until the last byte is synced to disk; ``blocking_s`` is how long training is blocked."""
    checkpoint = verified_checkpoint(form, model, tmp_path)
    gpubench.record("blocking_s", lambda: median(checkpoint.blocking_s), unit="s", better="lower")
    gpubench(checkpoint.save, bytes=checkpoint.bytes, setup=checkpoint.remove)
    checkpoint.remove()


@reading
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="mlp")
def test_checkpoint_load(gpubench, model, tmp_path, form):
    """From files in the page cache to tensors on the CPU."""
    checkpoint = verified_checkpoint(form, model, tmp_path)
    gpubench(checkpoint.load, bytes=checkpoint.bytes)
    checkpoint.remove()
