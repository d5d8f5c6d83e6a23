"""Real images from a path."""

from __future__ import annotations

import gzip
import io
import multiprocessing
import os
import re
import struct
import sys
import tarfile
import zlib
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
        made = Images(
            workload,
            section=section,
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


def _pipe(path):
    """To open it would block."""
    path.unlink()
    os.mkfifo(path)


def _png_of(side):
    """A file of a few bytes that says that it has so many rows and columns."""

    def write(path):
        header = struct.pack(">4sIIBBBBB", b"IHDR", side, side, 8, 2, 0, 0, 0)
        chunks = [
            struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
            for chunk in (header, b"IDAT")
        ]
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))

    return write


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_pipe, "not a regular file"),
        (_png_of(9_000), "81000000 pixels; the limit is 67108864"),
        (_png_of(13_000), ".*169000000 pixels"),  # Pillow's warning is an error here
    ],
)
def test_what_would_block_or_fill_the_memory_is_refused_unread(spoil, said, images, tmp_path):
    """In one line, which names the file, and what it has more than it may."""
    folder_of(tmp_path)
    spoil(tmp_path / "dog" / "0.png")
    with pytest.raises(UsageProblem, match=rf"data\.path: .*dog/0\.png: .*{said}") as refusal:
        labels_of(images(tmp_path, batch_size=1), 6)
    assert "\n" not in str(refusal.value)


def loader_on(device, **keys):
    """A loader of four images in batches of two."""
    return Loader(
        ArrayImages(np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, np.int64)),
        section=DataSection(source="images", **keys),
        batch_size=2,
        world_size=1,
        rank=0,
        seed=0,
        device=torch.device(device),
    )


@pytest.mark.parametrize(("device", "effective"), [("cuda", True), ("cpu", False)])
def test_only_copies_to_cuda_use_pinned_memory(device, effective):
    """Pinned memory that is wanted is there for CUDA, and for nothing else."""
    loader = loader_on(device, pin_memory=True)
    assert loader.settings["pinned_memory"] is effective
    loader.close()


def test_batches_for_cuda_are_pinned(monkeypatch):
    """Images and classes of each batch are copied into pinned memory, where CUDA is there."""
    pinned = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part, *_: pinned.append(part) or part)
    loader = loader_on("cuda")
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


def idx(path, *header, content=b""):
    path.write_bytes(struct.pack(f">{len(header)}I", *header) + content)


def mnist_with(folder, name, *header, content=b""):
    idx(mnist_of(folder, packed=False) / name, *header, content=content)
    return folder


def written(folder, name, content=b""):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder


def other_archive(folder):
    """Its members point elsewhere."""
    with tarfile.open(folder / "other.tar", "w") as archive:
        link = tarfile.TarInfo("data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    return folder / "other.tar"


def huge_archive(folder):
    """Its member says that it is larger than any memory."""
    member = tarfile.TarInfo("data_batch_1.bin")
    member.size = 3073 << 40
    return written(folder, "huge.tar", member.tobuf() + bytes(1024)) / "huge.tar"


def python_archive(folder):
    pickled = written(folder, "x/data_batch_1", b"cos\nsystem\n(S'touch owned'\ntR.") / "x"
    return archive_of(pickled, folder / "cifar-10-python.tar.gz")


def damaged_archive(folder, damage):
    # What can be compressed, so that damage is noticed.
    content = np.random.default_rng(0).integers(0, 4, 3073 * 40, np.uint8).tobytes()
    path = archive_of(written(folder, "x/data_batch_1.bin", content) / "x", folder / "a.tar.gz")
    path.write_bytes(damage(path.read_bytes()))
    return path


def two_parts(folder):
    folder_of(folder / "train")
    folder_of(folder / "test", classes=("cat", "cow"))
    return folder


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
FEW_CLASSES = r"model\.classes=10 is too small; the images have 11"
REFUSED = {
    "no path": (lambda _: None, r"data\.path=null: .* nothing is downloaded; allowed: cifar-10-b"),
    "empty path": (lambda _: "", r"data\.path=null: .* nothing is downloaded; .*train-images"),
    "long path": (lambda _: "n" * 5000, r"data\.path=n{5000}: File name too long; allowed: cifar"),
    "no user": (lambda _: "~nobody-here/x", r"data\.path=~nobody-here/x: no such file or folder"),
    "near": (lambda f: written(f, "pets/x") / "pet", r"pet: no such file .*did you mean 'pets'"),
    "empty folder": (lambda f: written(f, "cat/.x"), r"no images in \S*/cat.* allowed: cifar-10"),
    # A class whose images lie deeper, or are of another kind, is not left out.
    "deep": (lambda f: folder_of(f, classes=("cat", "dog/large")), r"no images in \S*/dog, .*jpg"),
    "file": (lambda f: written(f, "x.txt", b"no") / "x.txt", "is not an archive; allowed: cifar"),
    # It is pickled, and never read.
    "python version": (python_archive, r"contains no data_batch_1\.bin .*not the python version"),
    "huge": (huge_archive, r"cannot read \S*huge\.tar"),
    "other archive": (other_archive, r"contains no data_batch_1\.bin …; allowed:"),
    "part": (
        lambda f: written(f, "data_batch_1.bin", bytes(100)),
        "100 bytes; .* multiple of 3073",
    ),
    "nothing": (lambda f: written(f, "data_batch_1.bin"), "0 bytes; allowed: a multiple"),
    "labels": (
        lambda f: written(f, "data_batch_1.bin", b"\x0b" * 3073),
        "begin with one of 10 classes",
    ),
    "cut": (lambda f: damaged_archive(f, lambda data: data[:20_000]), r"cannot read \S*a\.tar\.gz"),
    "overwritten": (
        lambda f: damaged_archive(f, lambda d: d[:20_000] + b"\xff" * 99 + d[20_099:]),
        r"cannot read \S*a\.tar\.gz",
    ),
    "header": (lambda f: mnist_with(f, IMAGES, 2051), "not an idx file with 3 dimensions"),
    "counts": (lambda f: mnist_with(f, LABELS, 2049, 1, content=b"\0"), "28 by 28 .* but 1 labels"),
    "pixels": (lambda f: mnist_with(f, IMAGES, 2051, 20, 0, 28), "20 images of 0 by 28 pixels"),
    # So many pixels that 64 bits cannot count them.
    "many": (lambda f: mnist_with(f, IMAGES, 2051, 1 << 31, 1 << 31, 4), "not an idx file with 3"),
    "magic number": (
        lambda f: mnist_with(f, IMAGES, 2049, 20, 28, 28, content=bytes(15_680)),
        "not an idx file with 3",
    ),
    "no labels": (
        lambda f: written(f, IMAGES, struct.pack(">4I", 2051, 0, 0, 0)),
        "missing train-l",
    ),
    "gzip": (lambda f: written(f, f"{IMAGES}.gz", b"no"), rf"cannot read \S*{IMAGES}\.gz"),
    "classes": (
        lambda f: folder_of(f, classes=[f"class{n:02}" for n in range(11)], count=1),
        FEW_CLASSES,
    ),
    # On CUDA a class too many would end the process.
    "held out": (
        lambda f: mnist_with(f, "t10k-labels-idx1-ubyte", 2049, 20, content=bytes(19) + b"\x0a"),
        FEW_CLASSES,
    ),
    "other classes": (two_parts, r"has the classes cat, cow; .* cat, dog"),
}


@pytest.mark.parametrize(("made", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_in_a_line(made, message, images, tmp_path):
    """With the key, what is wrong and what is allowed; nothing is left beside it."""
    path = made(tmp_path)
    section = DataSection(source="images", path=None if path is None else str(path))
    if reason := Images.refusal(section):  # before any set-up
        assert re.search(message, reason), reason
        assert "\n" not in reason
        return
    with pytest.raises(UsageProblem, match=message) as refused:
        images(path)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "outside").exists()


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
