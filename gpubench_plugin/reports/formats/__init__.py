"""Output formats of ``gpubench compare``: one function per format, found by its name."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.reports.formats.base import Format, Page

__getattr__ = lazy_names(__name__)
