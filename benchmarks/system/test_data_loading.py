"""Batch loading through torch's DataLoader, alone and during training."""

import multiprocessing
import struct

import pytest

from gpubench_plugin import CorrectnessError, Unsupported

_SYNTHETIC_BATCHES = 8

workers = pytest.mark.parametrize(
    "workers",
    [
        pytest.param("no_workers", marks=pytest.mark.gpubench_set("data.workers=0")),
        pytest.param("2_workers", marks=pytest.mark.gpubench_set("data.workers=2")),
    ],
)
memory = pytest.mark.parametrize(
    "memory",
    [
        pytest.param("pinned", marks=pytest.mark.gpubench_set("data.pin_memory=true")),
        pytest.param("pageable", marks=pytest.mark.gpubench_set("data.pin_memory=false")),
    ],
)


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
@workers
@memory
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="resnet18")
def test_data_loading(gpubench, data, gpubench_config, dataset, workers, memory):
    """One batch of images as the model's inputs on the device."""
    expected, loaded = data.fixed_batch(), next(data)
    if not (expected.inputs == loaded.inputs).all():
        raise CorrectnessError("the first loaded batch is not the data source's first batch")
    data.restart()
    gpubench.record("pinned_memory", float(data.description()["pinned_memory"]))
    gpubench(lambda: next(data), samples=gpubench_config.training.samples)


@pytest.mark.parametrize("dataset", ["digits"])
@workers
@memory
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="resnet18")
def test_data_loading_train(gpubench, trainer, data, dataset, workers, memory):
    """Training on loaded batches; ``data_wait_fraction`` is the share of time waiting for them."""
    gpubench.record("pinned_memory", float(data.description()["pinned_memory"]))
    gpubench(trainer)


@pytest.fixture
def data(
    tmp_path, gpubench_config, workload, torch_device, precision, process_group, dataset, memory
):
    """Images in files of MNIST's format, loaded as configured in section ``data``."""
    from gpubench_plugin.training.data.images import Images

    if memory == "pinned" and torch_device.type != "cuda":
        raise Unsupported("pinned memory is for copies to CUDA; choose --device=cuda")
    _write(tmp_path, *_pictures(dataset, gpubench_config))
    section = gpubench_config.data.model_copy(update={"source": "images", "path": str(tmp_path)})
    source = Images(
        workload,
        section=section,
        batch_size=gpubench_config.training.samples,
        device=torch_device,
        world_size=process_group.world.size,
        rank=process_group.world.rank,
        seed=gpubench_config.experiment.seed,
        convert=precision.convert_batch,
    )
    processes = set(multiprocessing.active_children())
    yield source
    source.close()
    if workers := set(multiprocessing.active_children()) - processes:
        raise CorrectnessError(f"{len(workers)} workers outlive the benchmark")


def _pictures(dataset, configuration):
    """Images N×H×W in bytes, and N labels."""
    import numpy as np

    from gpubench_plugin.training.data.digits import read_digits

    if dataset == "digits":
        images, labels = read_digits()
        return (images[:, 0] * 255).astype(np.uint8), labels.astype(np.uint8)
    random = np.random.default_rng(configuration.experiment.seed)
    count = _SYNTHETIC_BATCHES * configuration.training.samples
    side = configuration.model.image_size
    return (
        random.integers(0, 256, (count, side, side), dtype=np.uint8),
        random.integers(0, 10, count, dtype=np.uint8),
    )


def _write(folder, images, labels):
    """Write images and labels in MNIST's format: magic number, dimensions, bytes."""
    shape = struct.pack(">IIII", 0x803, *images.shape)
    (folder / "train-images-idx3-ubyte").write_bytes(shape + images.tobytes())
    count = struct.pack(">II", 0x801, len(labels))
    (folder / "train-labels-idx1-ubyte").write_bytes(count + labels.tobytes())
