"""Where batches come from: one module per source, each a subclass of `base.DataSource`."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.training.data._image_files import ArrayPictures
    from gpubench_plugin.training.data._loading import Loader, epoch_of, held_out_rows
    from gpubench_plugin.training.data.base import DataSource

__getattr__ = lazy_names(__name__)
