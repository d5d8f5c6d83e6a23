"""Checkpoint formats to benchmark against each other.

All files are synced, here if not by the format. Formats read only their own files: DCP pickles its
metadata.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.core.errors import CorrectnessError, ResultsError, Unsupported, invalid_choice
from gpubench_plugin.training.checkpoint import differences, layouts_of, save_tensors
from gpubench_plugin.workloads._transformers import from_library

Tensors = Mapping[str, "Tensor"]


class CheckpointFormat(ABC):
    """Writes tensors to a file or folder at `path`, and reads them."""

    @abstractmethod
    def start(self, tensors: Tensors, path: Path) -> Callable[[], object]:
        """Start writing; training may continue on return. Call the result to wait for completion.

        Raises:
            Unsupported: the format cannot hold such tensors.
        """

    @abstractmethod
    def read(self, template: Tensors, path: Path) -> Tensors:
        """Read tensors shaped as `template`, on the CPU."""


class TorchSave(CheckpointFormat):
    """``torch.save``, read with ``weights_only``."""

    def start(self, tensors: Tensors, path: Path) -> Callable[[], object]:
        """Write the file, and return a function with nothing left to wait for."""
        save_tensors(path, dict(tensors))
        return lambda: None

    def read(self, template: Tensors, path: Path) -> Tensors:
        """Read the file without running code from it."""
        tensors: Tensors = torch.load(path, map_location="cpu", weights_only=True)
        return tensors


class Safetensors(CheckpointFormat):
    """Hugging Face's format: JSON header and raw bytes, without code."""

    def start(self, tensors: Tensors, path: Path) -> Callable[[], object]:
        """Write synchronously.

        Raises:
            Unsupported: a tensor is not contiguous, tensors share memory, or no safetensors.
        """
        (save_file,) = from_library("safetensors", "safetensors.torch", "save_file")
        for name, tensor in tensors.items():
            if not tensor.is_contiguous():
                raise Unsupported(
                    f"safetensors requires contiguous tensors, but {name} has strides "
                    f"{list(tensor.stride())}; set model.channels_last=false, or use a format "
                    "that keeps strides"
                )
        try:
            save_file(dict(tensors), path)
        except RuntimeError as error:
            raise Unsupported(f"safetensors: {' '.join(str(error).split())}") from error
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return lambda: None

    def read(self, template: Tensors, path: Path) -> Tensors:
        """Read the file; the format has no code to run."""
        (load_file,) = from_library("safetensors", "safetensors.torch", "load_file")
        tensors: Tensors = load_file(path)
        return tensors


class DCP(CheckpointFormat):
    """``torch.distributed.checkpoint`` over the default process group.

    It reads into given tensors, and silently casts to their dtype.
    """

    def start(self, tensors: Tensors, path: Path) -> Callable[[], object]:
        """Write the files, and return a function with nothing left to wait for."""
        from torch.distributed.checkpoint.state_dict_saver import save

        with _dcp_errors():
            save(dict(tensors), checkpoint_id=path)
        return lambda: None

    def read(self, template: Tensors, path: Path) -> Tensors:
        """Read into new tensors."""
        from torch.distributed.checkpoint.state_dict_loader import load

        tensors: dict[str, Any] = {
            name: torch.empty_like(t, device="cpu") for name, t in template.items()
        }
        with _dcp_errors():
            load(tensors, checkpoint_id=path)
        return tensors


class DCPThread(DCP):
    """Asynchronous DCP in a thread, over gloo: training continues once the tensors are copied."""

    in_process: ClassVar[bool] = False

    def start(self, tensors: Tensors, path: Path) -> Callable[[], object]:
        """Copy tensors to the CPU; a thread or process writes them.

        Raises:
            Unsupported: the default process group cannot carry tensors of the CPU.
        """
        backend = dist.get_backend() if dist.is_initialized() else "none"
        if backend != "gloo":
            raise Unsupported(
                f"asynchronous DCP requires a gloo process group, not {backend}: set "
                "distributed.backend=gloo"
            )
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save

        kind = AsyncCheckpointerType.PROCESS if self.in_process else AsyncCheckpointerType.THREAD
        with _dcp_errors():
            future: Any = async_save(
                dict(tensors), checkpoint_id=path, async_checkpointer_type=kind
            )

        def wait() -> None:
            with _dcp_errors():
                future.result()

        return wait


class DCPProcess(DCPThread):
    """Asynchronous DCP in a process, started by the first call."""

    in_process = True


FORMATS: Final[Mapping[str, type[CheckpointFormat]]] = {
    "torch-save": TorchSave,
    "safetensors": Safetensors,
    "dcp": DCP,
    "dcp-thread": DCPThread,
    "dcp-process": DCPProcess,
}


class CheckpointIO:
    """Checkpoint writing and reading as a benchmark: `tensors` in a format, in `folder`.

    Raises:
        UsageProblem: there is no such format.
    """

    def __init__(self, name: str, tensors: Tensors, folder: Path):
        if name not in FORMATS:
            raise invalid_choice("checkpoint format", name, FORMATS)
        self._format = FORMATS[name]()
        self._tensors = tensors
        self._path = folder / "checkpoint"
        self.bytes = sum(tensor.nbytes for tensor in tensors.values())
        self.blocking_s: list[float] = []
        """Seconds that each call of :meth:`save` blocked the training."""

    def save(self) -> None:
        """Write, waiting for completion."""
        started = perf_counter()
        wait = self._format.start(self._tensors, self._path)
        self.blocking_s.append(perf_counter() - started)
        wait()

    def load(self) -> Tensors:
        """Read the tensors last written."""
        return self._format.read(self._tensors, self._path)

    def verify(self) -> None:
        """Write, read and compare once.

        Raises:
            CorrectnessError: a tensor is not what was written, in dtype, shape, strides or values.
            Unsupported: the format cannot hold such tensors.
        """
        self.save()
        self.blocking_s.clear()  # the first call starts DCP's thread or process
        read_tensors = self.load()
        mismatches = differences(layouts_of(self._tensors), layouts_of(read_tensors)) or [
            f"{name} has other values"
            for name, tensor in self._tensors.items()
            if not tensor.detach().cpu().equal(read_tensors[name])
        ]
        if mismatches:
            raise CorrectnessError(
                f"the data read differ from the data written: {'; '.join(mismatches)}"
            )

    def remove(self) -> None:
        """Remove what was written, if anything."""
        if self._path.is_dir():
            shutil.rmtree(self._path)
        else:
            self._path.unlink(missing_ok=True)


@contextmanager
def _dcp_errors() -> Iterator[None]:
    """Convert DCP's exception, a BaseException, to an ordinary one.

    Raises:
        ResultsError: with DCP's reasons.
    """
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        reasons = "; ".join(str(failure[0]) for failure in error.failures.values())
        raise ResultsError(f"torch.distributed.checkpoint: {reasons}") from error
