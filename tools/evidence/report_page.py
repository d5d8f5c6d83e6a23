"""How fast a large report is made and answers: 1,000 benchmarks with 500 runs each.

    python tools/evidence/report_page.py [--rows=1000] [--points=500] [--repeats=10]

Needs Chromium. The page is one that tests make up; each repeat opens it anew, and times, in the
browser, what a user does until the next frame could be drawn. Exit code 1 where a median is beyond
its limit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.html.render import render
from tests.support.sample_pages import sample_page
from tools.evidence.pages import markdown

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIMITS: Final[Mapping[str, float]] = {
    "render, s": 2.0,
    "size, MiB": 8.0,
    "interactive, ms": 1000.0,
    "filter, ms": 50.0,
    "filter undone, ms": 50.0,
    "sort, ms": 100.0,
    "chart, ms": 50.0,
}
# Work and layout, which a reading of a size forces.
TIMED: Final = """action => {
  const start = performance.now();
  eval(action);
  document.body.offsetHeight;
  return performance.now() - start;
}"""
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
    """Print a row for each time; 1 if a median is beyond its limit."""
    from playwright.sync_api import sync_playwright

    page = sample_page(rows, points, detailed=50)
    figures: dict[str, list[float]] = {name: [] for name in LIMITS}
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
        for _ in range(repeats):
            for name, number in _timed(browser, path).items():
                figures[name].append(number)
        browser.close()
    load = f"load average {os.getloadavg()[0]:.1f}"
    print(f"{rows} benchmarks with {points} runs each; {os.cpu_count()} processors, {load}\n")
    medians = {name: median(numbers) for name, numbers in figures.items()}
    columns = ("", f"median of {repeats}", "least", "most", "limit")
    cells = (
        (name, *(f"{n:.3g}" for n in (medians[name], min(numbers), max(numbers), LIMITS[name])))
        for name, numbers in figures.items()
    )
    print(markdown(columns, cells))
    return int(any(medians[name] > limit for name, limit in LIMITS.items()))


def _timed(browser: Browser, path: Path) -> dict[str, float]:
    """Milliseconds of one visit."""
    # The policy of the page forbids what is injected to be evaluated.
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, bypass_csp=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("#chosen .uplot canvas")
    ready = "performance.getEntriesByName('usable')[0].startTime"
    times = {"interactive, ms": float(page.evaluate(ready))}
    page.wait_for_timeout(200)
    for name, action in ACTIONS.items():
        times[name] = float(page.evaluate(TIMED, action))
        page.wait_for_timeout(100)
    context.close()
    return times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    sys.exit(main(arguments.rows, arguments.points, arguments.repeats))
