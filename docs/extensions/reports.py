"""Pages that the package makes of the results in ``docs/examples/report``, as the site is built."""

from __future__ import annotations

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from gpubench_plugin.cli.main import main

if TYPE_CHECKING:
    from sphinx.application import Sphinx

RESULTS: Final = Path(__file__).parents[1] / "examples" / "report" / "results.tar.xz"


def links() -> str:
    """Where the site has them, as `write_pages` names them."""
    return (
        'Real ones: <a href="../report/run.html">a run</a>, judged by ten earlier ones; '
        '<a href="../report/comparison.html">a comparison</a> of `gpubench ab`; and '
        '<a href="../report/site/index.html">the site</a> of all runs of that project.'
    )


def write_pages(folder: Path) -> None:
    """Write the pages of the last run and of the comparison, and the site of all."""
    folder.mkdir(parents=True)
    with TemporaryDirectory() as name, tarfile.open(RESULTS) as archive:
        archive.extractall(name, filter="data")
        results = Path(name) / "results"
        (comparison,) = results.glob("ab/*/")
        run = max(results.glob("nightly/*/"))
        for words in (
            [str(run), f"--output={folder / 'run.html'}"],
            [str(comparison), f"--output={folder / 'comparison.html'}"],
            [f"--site={folder / 'site'}"],
        ):
            if main(["report", *words, "--public", f"--results-dir={results}"]):
                raise RuntimeError(f"gpubench report {' '.join(words)}: failed")


def _finish(app: Sphinx, error: Exception | None) -> None:
    if app.builder.format == "html" and not error:
        write_pages(Path(app.outdir) / "report")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True}
