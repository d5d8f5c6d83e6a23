"""What of a configuration makes two measurements comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment import flat

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import Configuration

_NO_PART: Final = (
    "experiment.notes",
    "profiling.",
    "gate.",
    "measure.profile",  # the keys it sets are part
    "measure.rounds_file",
    "measure.timeout_s",
    "measure.check",  # untimed, like the keys that begin so
    "training.loss_drop",  # judges the untimed training, and changes nothing in it
    "training.checkpoint",
    "training.resume",
    "distributed.failure_grace_s",
    "distributed.divergence_s",
    "diffusion.receive_timeout_s",
)


def comparable(configuration: Configuration[Any]) -> dict[str, Any]:
    """The keys that can change a number and are no defaults, by dot key.

    Defaults are left out so that a new key with a default orphans no baseline.
    """
    return comparable_part(flat(configuration.model_dump(mode="json", exclude_defaults=True)))


def comparable_part(keys: dict[str, Any]) -> dict[str, Any]:
    """Those of the `keys` by dot key that can change a number."""
    return {key: value for key, value in keys.items() if not key.startswith(_NO_PART)}
