"""Writing and reading checkpoints: the tensors of a model and of its AdamW, in several formats.

The files lie below pytest's ``--basetemp``: choose the file system with it.
"""

from statistics import median

import pytest

# DCP in the background is for nightly runs: its process imports torch anew, and a session that
# ends right after its thread is sometimes aborted by gloo. It needs gloo also beside CUDA.
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


def verified(form, model, folder):
    """The tensors of `model` and its optimizer in a format, written and read once."""
    import torch

    from gpubench_plugin.training import CheckpointIO

    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in state.items()}
    made = CheckpointIO(form, tensors, folder)
    made.verify()
    return made


@writing
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="mlp")
def test_checkpoint_save(gpubench, model, tmp_path, form):
    """From the first call to the last byte on disk; beside it how long training has to wait."""
    checkpoint = verified(form, model, tmp_path)
    gpubench.record("blocking_s", lambda: median(checkpoint.blocking_s), unit="s", better="lower")
    gpubench(checkpoint.save, bytes=checkpoint.bytes, setup=checkpoint.remove)
    checkpoint.remove()


@reading
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="mlp")
def test_checkpoint_load(gpubench, model, tmp_path, form):
    """From the files, which the system has in memory, to tensors on the CPU."""
    checkpoint = verified(form, model, tmp_path)
    gpubench(checkpoint.load, bytes=checkpoint.bytes)
    checkpoint.remove()
