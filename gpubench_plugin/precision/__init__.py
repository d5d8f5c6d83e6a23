"""Numeric precisions: subclasses of `base.Precision`, several per module."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.precision._nested import cast_floating
    from gpubench_plugin.precision.base import Precision

__getattr__ = lazy_names(__name__)
