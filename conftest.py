"""Site policy of this repository: what runs by default here, nothing the plugin should know."""

from __future__ import annotations

pytest_plugins = ["pytester"]
