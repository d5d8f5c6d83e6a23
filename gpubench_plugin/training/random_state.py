"""The random generators of this process: their states, kept and put back."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from gpubench_plugin.records import Json


@dataclass(frozen=True, kw_only=True)
class RandomState:
    """The states of Python's generator, numpy's global one, torch's on the CPU, and the device's.

    All of it is JSON: bytes are written in base64. `device` is None where that is the CPU.
    """

    python: str
    numpy: Json
    cpu: str
    device: str | None

    @classmethod
    def capture(cls, device: torch.device) -> Self:
        """The states now; waits for the device."""
        version, words, gauss = random.getstate()
        legacy: dict[str, Any] = np.random.get_state(legacy=False)
        own = None
        if device.type != "cpu":
            own = _text(torch.get_device_module(device).get_rng_state(device))
        return cls(
            python=" ".join(map(str, (version, gauss, *words))),
            numpy={**legacy, "state": _plain(legacy["state"])},
            cpu=_text(torch.get_rng_state()),
            device=own,
        )

    def restore(self, device: torch.device) -> None:
        """Put them back; the device's only where it has one and had one."""
        version, gauss, *words = self.python.split(" ")
        random.setstate(
            (int(version), tuple(map(int, words)), None if gauss == "None" else float(gauss))
        )
        np.random.set_state(
            {**self.numpy, "state": {k: _array(v) for k, v in self.numpy["state"].items()}}
        )
        torch.set_rng_state(_bytes(self.cpu))
        if self.device is not None and device.type != "cpu":
            torch.get_device_module(device).set_rng_state(_bytes(self.device), device)

    def to_json(self) -> Json:
        """A dictionary of JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that :meth:`to_json` wrote."""
        return cls(**data)


def _plain(state: Mapping[str, Any]) -> Json:
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state.items()}


def _array(value: Any) -> Any:
    return np.asarray(value, dtype=np.uint32) if isinstance(value, list) else value


def _text(state: Tensor) -> str:
    return b64encode(state.cpu().numpy().tobytes()).decode("ascii")


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8)
