"""The documentation site, built by Sphinx: ``tox -e docs``."""

import os
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "gpubench"
author = copyright = "The gpubench developers"
release = metadata.version("pytest-gpubench")
html_title = f"{project} {release}"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "docs.extensions.reports",  # before the next, which checks what is built
    "docs.extensions.pages",
]
exclude_patterns = ["examples"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = False
smartquotes = False  # options begin with two dashes

myst_heading_anchors = 4
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target"]  # a forge has none
default_role = "code"  # docstrings write `argument`

# Nothing of torch is needed to read docstrings, signatures and sections.
autodoc_mock_imports = ["torch", "transformers", "diffusers"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_display_short_literal_types = True
python_maximum_signature_line_length = 88
autodoc_default_options = {"members": True}
