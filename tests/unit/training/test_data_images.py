"""Real images from a path."""

from __future__ import annotations

import gzip
import io
import multiprocessing
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gpubench_plugin.config.sections import DataSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.training.data._loading import Loader, epoch_rows
from gpubench_plugin.training.data.images import ArrayImages, Images
from gpubench_plugin.workloads.base import Batch, Workload

CPU = torch.device("cpu")


@pytest.fixture
def mlp():
    """A workload of grey 8×8 images of ten classes."""
    kind = catalog.load("workloads", "mlp")
    return kind(kind.Section(name="mlp"))


@pytest.fixture
def images(mlp):
    """Makes the source that reads a path; keywords are keys of the section, or of the source."""
    sources = []

    def make(path, *, workload=mlp, batch_size=10, world_size=1, rank=0, seed=0, **keys):
        section = DataSection(source="images", path=None if path is None else str(path), **keys)
        made = Images.from_section(
            section,
            workload,
            batch_size=batch_size,
            device=CPU,
            world_size=world_size,
            rank=rank,
            seed=seed,
        )
        sources.append(made)
        return made

    yield make
    for made in sources:
        made.close()


def archive_of(folder, path, *, prefix="cifar-10-batches-bin/"):
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(folder.iterdir()):
            archive.add(file, arcname=prefix + file.name)
    return path


def folder_of(path, classes=("cat", "dog"), count=3, size=(9, 7)):
    """A folder of noisy images, half of them PNG, half JPEG."""
    draw = np.random.default_rng(1)
    for name in classes:
        (path / name).mkdir(parents=True)
        for index in range(count):
            pixels = draw.integers(0, 256, (*size, 3), dtype=np.uint8)
            suffix = ("png", "JPG")[index % 2]
            Image.fromarray(pixels).save(path / name / f"{index}.{suffix}")
    return path


def mnist_of(path, *, packed, count=20, test=True):
    draw = np.random.default_rng(2)
    for part in ("train", "t10k") if test else ("train",):
        pixels = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        images, labelled = path / f"{part}-images-idx3-ubyte", path / f"{part}-labels-idx1-ubyte"
        idx(images, 2051, count, 28, 28, content=pixels.tobytes())
        idx(labelled, 2049, count, content=labels.tobytes())
        for file in (images, labelled) if packed else ():
            Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    return path


# What is read.


def test_archive_and_folder_are_the_same(images, binary_cifar, tmp_path):
    """The archive gives what its folder gives, and so does the folder above, with nothing left."""
    archive = archive_of(binary_cifar, tmp_path / "cifar-10-binary.tar.gz")
    before = sorted(tmp_path.rglob("*"))
    sources = [images(path) for path in (binary_cifar, tmp_path, archive)]
    batches = [next(source) for source in sources]
    assert all(batch.inputs.equal(batches[0].inputs) for batch in batches)
    assert [source.description() for source in sources] == [
        {
            "kind": "cifar-10",
            "classes": 10,
            "samples": 60,
            "held_out": 20,
            "workers": 0,
            "pinned_memory": False,
            "prefetch_factor": None,
            "persistent_workers": False,
        }
    ] * 3
    assert sorted(tmp_path.rglob("*")) == before


def test_cifar_pixels_and_labels(images, binary_cifar, slope):
    """A record is its label, then red, green and blue; values become 0 to 1."""
    slope.from_images = Batch
    source = images(binary_cifar, workload=slope, batch_size=20)
    (batch,) = source.held_out()
    records = np.frombuffer((binary_cifar / "test_batch.bin").read_bytes(), np.uint8)
    records = records.reshape(20, 3073)
    expected = torch.tensor(records[:, 1:].reshape(20, 3, 32, 32) / 255, dtype=torch.float32)
    torch.testing.assert_close(batch.inputs, expected)
    assert batch.targets.tolist() == records[:, 0].tolist()


@pytest.mark.parametrize("packed", [False, True])
def test_mnist(packed, images, tmp_path):
    """MNIST's files are read packed or not; grey images go to a model of grey ones."""
    source = images(mnist_of(tmp_path, packed=packed))
    batch = next(source)
    assert (batch.inputs.shape, sum(len(b.targets) for b in source.held_out())) == (
        (10, 1, 8, 8),
        20,
    )
    assert source.description()["kind"] == "mnist"


def test_mnist_without_its_test_part_holds_nothing_out(images, tmp_path):
    """Only what is there is read."""
    source = images(mnist_of(tmp_path, packed=False, test=False))
    assert list(source.held_out()) == []


def test_folder_of_images(images, tmp_path):
    """PNG and JPEG of any size are scaled; classes are folders in their order."""
    source = images(folder_of(tmp_path), batch_size=6)
    batch = next(source)
    assert (batch.inputs.shape, sorted(batch.targets.tolist())) == (
        (6, 1, 8, 8),
        [0, 0, 0, 1, 1, 1],
    )
    assert (source.description()["kind"], list(source.held_out())) == ("folder", [])


def test_hidden_folders_are_no_classes(images, tmp_path):
    """What other programs leave in hidden folders is not looked at; one class is enough."""
    folder_of(tmp_path, classes=("cat", ".thumbnails"))
    assert images(tmp_path).description()["classes"] == 1


@pytest.mark.parametrize("held_out", ["test", "val"])
def test_folder_with_a_part_held_out(held_out, images, tmp_path):
    """Below train are images to train on, below test or val those held out."""
    folder_of(tmp_path / "train")
    folder_of(tmp_path / held_out, count=1)
    source = images(tmp_path, batch_size=6)
    assert sum(len(batch.targets) for batch in source.held_out()) == 2
    assert source.description()["samples"] == 6


# Order and shares.


def labels_of(source, batches):
    return [label for _ in range(batches) for label in next(source).targets.tolist()]


def test_epochs_differ_and_follow_the_seed(images, binary_cifar):
    """Each epoch has an order of its own, the same for the same seed."""
    first, again, other = (images(binary_cifar, seed=seed) for seed in (0, 0, 1))
    one, two = labels_of(first, 6), labels_of(first, 6)
    assert one != two
    assert sorted(one) == sorted(two)
    assert labels_of(again, 12) == one + two
    assert labels_of(other, 6) != one


def test_ranks_take_disjoint_shares(images, binary_cifar):
    """Two ranks' batches together are those of one process with the global batch."""
    ranks = [images(binary_cifar, batch_size=5, world_size=2, rank=rank) for rank in range(2)]
    one = images(binary_cifar, batch_size=10)
    for _ in range(6):
        parts = [next(source).inputs for source in ranks]
        assert torch.stack(parts, dim=1).flatten(0, 1).equal(next(one).inputs)


# Workers.


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [True, False])
def test_workers_load_the_same_and_end(persistent, images, binary_cifar):
    """Workers give the batches that this process would, also after a restart; closing ends them."""
    alone = images(binary_cifar)
    source = images(binary_cifar, workers=2, prefetch_factor=3, persistent_workers=persistent)
    first = next(alone).inputs
    assert next(source).inputs.equal(first)
    assert len(multiprocessing.active_children()) == 2
    source.restart()
    assert next(source).inputs.equal(first)
    for _ in range(6):  # into the next epoch
        assert next(source).inputs.equal(next(alone).inputs)
    assert source.description()["workers"] == 2
    assert source.description()["prefetch_factor"] == 3
    assert source.description()["persistent_workers"] is persistent
    source.close()
    assert multiprocessing.active_children() == []


def _seed_with_last(row, count=6):
    """A seed with which a row comes last: the first batch is read by the source itself."""
    share = {"batch_size": 1, "world_size": 1, "rank": 0}
    return next(seed for seed in range(100) if epoch_rows(count, seed=seed, **share)[-1] == row)


@pytest.mark.slow
def test_broken_image_is_named_and_workers_end(images, tmp_path):
    """An image that cannot be read by a worker is one message that names it; nothing is left."""
    folder_of(tmp_path)
    (tmp_path / "dog" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    source = images(tmp_path, batch_size=1, workers=1, seed=_seed_with_last(3))
    with pytest.raises(UsageProblem, match=r"data\.path: .*dog/0\.png: cannot be read as an image"):
        labels_of(source, 6)
    source.close()
    assert multiprocessing.active_children() == []


def test_pinned_memory_is_recorded_as_it_is(images, binary_cifar):
    """Pinned memory that is asked for on a CPU is recorded as not pinned."""
    assert images(binary_cifar, pin_memory=True).description()["pinned_memory"] is False


@pytest.mark.parametrize(("device", "effective"), [("cuda", True), ("cpu", False)])
def test_only_copies_to_cuda_use_pinned_memory(device, effective):
    """Pinned memory that is wanted is there for CUDA, and for nothing else."""
    loader = Loader(
        ArrayImages(np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, np.int64)),
        section=DataSection(source="images", pin_memory=True),
        batch_size=2,
        world_size=1,
        rank=0,
        seed=0,
        device=torch.device(device),
    )
    assert loader.settings["pinned_memory"] is effective
    loader.close()


def test_batches_for_cuda_are_pinned(monkeypatch):
    """Images and classes of each batch are copied into pinned memory, where CUDA is there."""
    pinned = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part: pinned.append(part) or part)
    loader = Loader(
        ArrayImages(np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, np.int64)),
        section=DataSection(source="images"),
        batch_size=2,
        world_size=1,
        rank=0,
        seed=0,
        device=torch.device("cuda"),
    )
    batches = [loader.next(), loader.next()]
    loader.close()
    assert [part.shape for part in pinned] == [(2, 1, 2, 2), (2,)] * 2
    assert all(part is kept for part, kept in zip(sum(batches, ()), pinned, strict=True))


def test_random_numbers_of_the_model_are_left_alone(images, binary_cifar):
    """Loading draws nothing from the generator that dropout and others draw from."""
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    next(images(binary_cifar))
    assert torch.rand(3).equal(expected)


# What is refused.


@pytest.mark.parametrize("path", [None, ""])
def test_nothing_is_downloaded(path, images):
    """Without a path the message says what to give, and that nothing is downloaded."""
    message = (
        r"data\.path is required, since nothing is downloaded; .*cifar-10-binary\.tar\.gz.*"
        r"train-images-idx3-ubyte"
    )
    with pytest.raises(UsageProblem, match=message):
        images(path)


@pytest.mark.parametrize("path", ["n" * 5000, "~nobody-here/x", "nowhere"])
def test_path_that_cannot_be_looked_at(path, images):
    """What the operating system refuses is one message with what is allowed."""
    with pytest.raises(UsageProblem, match=rf"data\.path: cannot read {path[:9]}.*allowed: cifar"):
        images(path)


def test_empty_folder(images, tmp_path):
    """A folder without images is one message that says what is allowed."""
    (tmp_path / "cat").mkdir()
    with pytest.raises(UsageProblem, match=r"; allowed: one folder per class with"):
        images(tmp_path)


def test_class_without_images(images, tmp_path):
    """A class whose images lie deeper, or are of another kind, is named rather than left out."""
    folder_of(tmp_path, classes=("cat", "cow", "dog/large"))
    (tmp_path / "dog" / "notes.txt").write_text("nothing")
    with pytest.raises(UsageProblem, match=r"data\.path: no images in \S*/dog; .* directly in it"):
        images(tmp_path)


def test_some_file(images, tmp_path):
    """A file that is not an archive is refused."""
    file = tmp_path / "notes.txt"
    file.write_text("nothing")
    with pytest.raises(UsageProblem, match="is not an archive; allowed: cifar-10-binary"):
        images(file)


@pytest.mark.parametrize("where", ["archive", "folder"])
def test_python_version_is_refused(where, images, tmp_path):
    """CIFAR-10's python version is pickled: it is never read, the binary version is named."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    path = folder
    if where == "archive":
        path = archive_of(folder, tmp_path / "cifar-10-python.tar.gz", prefix="x/")
    with pytest.raises(UsageProblem, match=r"python version, which is pickled .* binary version"):
        images(path)


def test_archive_without_images_is_refused(images, tmp_path):
    """Another archive is refused, and members that point elsewhere are not followed."""
    path = tmp_path / "other.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    with pytest.raises(UsageProblem, match=r"contains no data_batch_1\.bin …; allowed:"):
        images(path)
    assert [file.name for file in tmp_path.iterdir()] == ["other.tar"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0" * 100, r"data_batch_1\.bin has 100 bytes; allowed: a multiple of 3073"),
        (b"", r"data_batch_1\.bin has 0 bytes"),
        (b"\x0b" * 3073, "does not contain images of 10 classes"),
    ],
)
def test_damaged_cifar(content, message, images, tmp_path):
    """A batch of the wrong size, or with labels there are not, is one message."""
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    with pytest.raises(UsageProblem, match=message):
        images(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:20_000], lambda data: data[:20_000] + b"\xff" * 99 + data[20_099:]],
    ids=["cut", "overwritten"],
)
def test_damaged_archive(damage, images, binary_cifar, tmp_path):
    """An archive that ends too early, or does not unpack, is one message."""
    for file in binary_cifar.iterdir():  # what can be compressed, so that damage is noticed
        file.write_bytes(np.random.default_rng(0).integers(0, 4, 3073 * 40, np.uint8).tobytes())
    path = archive_of(binary_cifar, tmp_path / "damaged.tar.gz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageProblem, match=r"cannot read \S*damaged\.tar\.gz"):
        images(path)


def test_huge_member_is_not_read(images, tmp_path):
    """A member that says it is larger than any batch is refused without its bytes."""
    path = tmp_path / "huge.tar"
    member = tarfile.TarInfo("../data_batch_1.bin")
    member.size = 3073 << 40
    path.write_bytes(member.tobuf() + bytes(1024))
    with pytest.raises(UsageProblem, match=r"cannot read \S*huge\.tar"):
        images(path)


def idx(path, *header, content=b""):
    path.write_bytes(struct.pack(f">{len(header)}I", *header) + content)


@pytest.mark.parametrize(
    ("name", "header", "content", "message"),
    [
        ("train-images-idx3-ubyte", (2051,), b"", "not an idx file with 3 dimensions"),
        ("train-labels-idx1-ubyte", (2049, 1), b"\0", "20 images of 28 by 28 pixels but 1 labels"),
        ("train-images-idx3-ubyte", (2051, 20, 0, 28), b"", "20 images of 0 by 28 pixels"),
        # So many pixels that 64 bits cannot count them.
        ("train-images-idx3-ubyte", (2051, 1 << 31, 1 << 31, 4), b"", "not an idx file with 3"),
        ("train-images-idx3-ubyte", (2049, 20, 28, 28), bytes(15_680), "not an idx file with 3"),
    ],
)
def test_damaged_mnist(name, header, content, message, images, tmp_path):
    """Files of MNIST that are cut or do not belong together are one message."""
    idx(mnist_of(tmp_path, packed=False) / name, *header, content=content)
    with pytest.raises(UsageProblem, match=message):
        images(tmp_path)


def test_missing_labels(images, tmp_path):
    """A file of MNIST that is missing is named."""
    (mnist_of(tmp_path, packed=False) / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(UsageProblem, match="missing train-labels"):
        images(tmp_path)


def test_damaged_gzip(images, tmp_path):
    """A packed file that is not packed is one message."""
    mnist_of(tmp_path, packed=True)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(UsageProblem, match=r"cannot read \S*train-images-idx3-ubyte\.gz"):
        images(tmp_path)


def test_too_few_classes(images, tmp_path):
    """A model with fewer classes than there are folders is refused before anything is loaded."""
    folder_of(tmp_path, classes=[f"class{n:02}" for n in range(11)], count=1)
    with pytest.raises(UsageProblem, match=r"model\.classes=10 is too small; the images have 11"):
        images(tmp_path)


def test_too_few_classes_for_what_is_held_out(images, tmp_path):
    """Held-out labels count, too: on CUDA a class too many would end the process."""
    mnist_of(tmp_path, packed=False)
    idx(tmp_path / "t10k-labels-idx1-ubyte", 2049, 20, content=bytes(19) + b"\x0a")
    with pytest.raises(UsageProblem, match=r"model\.classes=10 is too small; the images have 11"):
        images(tmp_path)


def test_other_classes_held_out(images, tmp_path):
    """Held-out images of other classes than those to train on are refused."""
    folder_of(tmp_path / "train")
    folder_of(tmp_path / "test", classes=("cat", "cow"))
    with pytest.raises(UsageProblem, match=r"has the classes cat, cow; .* cat, dog"):
        images(tmp_path)


def test_fewer_images_than_ranks(images, tmp_path):
    """A rank without images is refused."""
    folder_of(tmp_path, count=1)
    with pytest.raises(UsageProblem, match="2 samples are too few for 3 ranks"):
        images(tmp_path, world_size=3)


def test_a_denoising_network_takes_a_folder(images, tmp_path):
    """Its samples are images, too, though the key of their size has another name."""
    kind = catalog.load("workloads", "unet2d")
    batch = images(folder_of(tmp_path), workload=kind(kind.Section(name="unet2d"))).fixed_batch()
    assert tuple(batch.inputs.shape[1:]) == (3, 32, 32)


def test_model_without_images(images, binary_cifar, tmp_path, slope):
    """A model that takes no images is unsupported, whatever kind of images there are."""
    slope.from_images = lambda pixels, labels: Workload.from_images(slope, pixels, labels)
    for path in (binary_cifar, folder_of(tmp_path / "folder")):
        with pytest.raises(Unsupported, match="slope is not an image model"):
            images(path, workload=slope)


def test_without_pillow(images, tmp_path, monkeypatch):
    """Without Pillow a folder is unsupported, and the message names what to install."""
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(Unsupported, match=r"Pillow.* pip install pillow"):
        images(tmp_path)
