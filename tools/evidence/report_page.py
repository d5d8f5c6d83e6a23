"""How fast a large report is made and answers: 1,000 benchmarks with 500 runs each.

    python tools/evidence/report_page.py [--rows=1000] [--points=500] [--repeats=10]

Needs Chromium. The page is one that tests make up, with details of 50 benchmarks. Each repeat opens
it anew, and times in the browser what a user does: until the layout is done, and until the frame
after it. ``docs/evidence/report_page.md`` gets the medians, which are worth something if nothing
else ran. Exit code 1 where one is beyond its limit.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.reports.html.render import LIMIT, render
from tests.support.sample_pages import sample_page
from tools.evidence.pages import markdown, save

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIMITS: Final[Mapping[str, float]] = {
    "render, s": 2.0,
    "size, MiB": LIMIT / 2**20,
    "table usable and first chart drawn, ms": 1000.0,
    "filter, ms": 50.0,
    "filter undone, ms": 50.0,
    "sort, ms": 100.0,
    "chart, ms": 50.0,
}
# Reading a size forces the layout. A message follows the frame that is drawn next.
TIMED: Final = """action => new Promise(done => {
  const start = performance.now();
  eval(action);
  document.body.offsetHeight;
  const laidOut = performance.now() - start;
  requestAnimationFrame(() => setTimeout(() => done([laidOut, performance.now() - start])));
})"""

SEARCH: Final = """
  const box = document.getElementById("search");
  box.value = "{}";
  box.dispatchEvent(new Event("input"));
"""
ACTIONS: Final = {
    "filter, ms": SEARCH.format("amp"),
    "filter undone, ms": SEARCH.format(""),
    "sort, ms": "document.querySelector('[data-column=value] button').click()",
    "chart, ms": "document.querySelectorAll('button.name')[500].click()",
}


def main(rows: int, points: int, repeats: int) -> int:
    """Write a row for each figure; 1 if a median is beyond its limit."""
    from playwright.sync_api import sync_playwright

    page = sample_page(rows, points, detailed=50)
    figures: dict[str, list[float]] = defaultdict(list)
    text = ""
    for _ in range(repeats):
        start = time.perf_counter()
        text = render(page)
        figures["render, s"].append(time.perf_counter() - start)
        figures["size, MiB"].append(len(text.encode()) / 2**20)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        path.write_text(text, encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        version = f"Chromium {browser.version}"
        for _ in range(repeats):
            for name, number in _timed(browser, path):
                figures[name].append(number)
        browser.close()
    medians = {name: median(numbers) for name, numbers in figures.items()}
    columns = ("", f"median of {repeats}", "least", "most", "limit")
    cells = (
        (name, *(f"{number:.3g}" for number in (medians[name], min(own), max(own))), limit(name))
        for name, own in figures.items()
    )
    introduction = (
        f"# A report of {rows:,} benchmarks with {points} runs each\n\n"
        "Written by `python tools/evidence/report_page.py`: a file of "
        f"{medians['size, MiB']:.1f} MiB in {version}, opened anew for each repeat. "
        f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the end, "
        f"Python {platform.python_version()}, {platform.machine()}.\n"
    )
    save("report_page.md", introduction, markdown(columns, cells))
    return int(any(medians[name] > most for name, most in LIMITS.items()))


def limit(name: str) -> str:
    """Text of the limit of a figure, if it has one."""
    return f"{LIMITS[name]:,.0f}" if name in LIMITS else ""


def _timed(browser: Browser, path: Path) -> Iterator[tuple[str, float]]:
    """Milliseconds of one visit."""
    # The page's own policy forbids to evaluate texts.
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, bypass_csp=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("#chosen .uplot canvas")
    ready = "performance.getEntriesByName('usable')[0].startTime"
    yield "table usable and first chart drawn, ms", page.evaluate(ready)
    page.wait_for_timeout(200)
    for name, action in ACTIONS.items():
        laid_out, drawn = page.evaluate(TIMED, action)
        yield name, laid_out
        yield name.replace(",", ", with the next frame drawn,"), drawn
        page.wait_for_timeout(100)
    context.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    sys.exit(main(arguments.rows, arguments.points, arguments.repeats))
