"""Data sources, one per module, subclasses of `base.DataSource`."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.training.data._image_files import ArrayImages
    from gpubench_plugin.training.data._loading import Loader, epoch_rows, held_out_rows
    from gpubench_plugin.training.data.base import NO_EPOCHS, NOTHING_HELD_OUT, DataSource

__getattr__ = lazy_names(__name__)
