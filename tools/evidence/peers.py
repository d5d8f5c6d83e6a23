"""gpubench beside pytest-benchmark, asv and pyperf: what they cost, and what their gates find.

    pip install -c constraints.txt -e . --group evidence     # without torch, which none needs
    python tools/evidence/peers.py [--repeats 3]

A repository has two functions, of about 10 µs and 10 ms, in a commit *base*, in one with the same
code (*equal*), and in one in which both do 10% more (*slower*). All tools measure them in turns, by
default settings, and each says by its own rules which became slower. A repeat compares both with
the base, once by the slow tools and three times by the others. Three take about 25 minutes on two
idle cores. The numbers go between the comments of ``docs/evidence/peers.md``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from statistics import median
from tempfile import TemporaryDirectory
from timeit import Timer
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.environment.devices import cpu_model
from tools.evidence import pages

PEERS: Final = [f"{name}=={version(name)}" for name in ("pytest-benchmark", "asv", "pyperf")]
PIN: Final = "python -m gpubench_plugin baseline set main --no-branch --force --reason=doubts"
SIZES: Final = {"small": 1_000, "large": 800_000}
HEADS: Final = ("equal", "slower")
SUITES: Final = {"both": [*SIZES], "one": ["small"], "twenty": ["small"] * 20}
LINES: Final = {  # of a tool's file: the first line, and one for each benchmark
    "asv_suites/{}.py": ("import work", "def time_{}(): work.{}()"),
    "pyperf_{}.py": ("import pyperf, work; run = pyperf.Runner().bench_func", "run('{}', work.{})"),
    "test_benchmark_{}.py": ("import work", "def test_{}(benchmark): benchmark(work.{})"),
    "test_gpubench_{}.py": ("import work", "def test_{}(gpubench): gpubench(work.{})"),
}
FILES: Final = {
    ".gitignore": "*\n",
    "asv_suites/__init__.py": "",
    # asv keeps all its builds, else it builds again and again; and its results where ours are not.
    "asv.conf.json": '{"version": 1, "project": "work", "repo": ".", "branches": ["base"], '
    '"environment_type": "virtualenv", "benchmark_dir": "asv_suites", "build_cache_size": 3, '
    '"results_dir": ".asv"}',
    "setup.py": 'import setuptools\nsetuptools.setup(name="work", py_modules=["work"])\n',
}


class Way(NamedTuple):
    """Commands that compare the head with *base*; how its rules print that a function is slower."""

    rules: dict[str, str]
    commands: str
    fails: bool = True


BENCHMARK: Final = Way(
    {
        "pytest-benchmark, `median:5%`": r"test_(\w+)_\d .* 'median' has failed",
        "pytest-benchmark, `min:5%`": r"test_(\w+)_\d .* 'min' has failed",
    },
    """python -m pytest -q -p no:gpubench test_benchmark_both.py --benchmark-save=base
git checkout -q HEAD
python -m pytest -q -p no:gpubench test_benchmark_both.py --benchmark-compare \
--benchmark-compare-fail median:5% min:5%""",
)
ASV: Final = Way(
    {"`asv continuous`": r"^\| \+ .*time_(\w+)_\d"},
    "python -m asv continuous --factor=1.05 --bench=^both base HEAD",
)
PYPERF: Final = Way(
    {"`pyperf compare_to`": r"^\| (\w+)_\d .* slower"},
    """rm -f base.json head.json
python pyperf_both.py -o base.json
git checkout -q HEAD
python pyperf_both.py -o head.json
python -m pyperf compare_to --table --min-speed=5 base.json head.json""",
    fails=False,
)
GATE: Final = Way(
    {"gpubench, `--gate`": r"^(\w+)_\d .* ✗"},
    """git checkout -q HEAD
python -m pytest -q test_gpubench_both.py --baseline=main --gate""",
)
AB: Final = Way(
    {"`gpubench ab`": r"^(\w+)_\d .* ✗"},
    "python -m gpubench_plugin ab --base=base --head=HEAD -- test_gpubench_both.py",
)
TURNS: Final = (BENCHMARK, ASV, GATE, PYPERF, BENCHMARK, ASV, GATE, AB, BENCHMARK, ASV, GATE)
COSTS: Final = (
    "python -m pytest -q -p no:gpubench test_benchmark_{}.py",
    "python -m asv run --bench=^{} base^!",
    "python pyperf_{}.py",
    "python -m pytest -q test_gpubench_{}.py",
)


def shell(folder: Path, command: str, *, may_fail: bool = False) -> tuple[int, str]:
    """Run it with this Python and this checkout; other exit codes than 0, or 1, end everything."""
    environment = os.environ | {"PYTHONPATH": str(pages.ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment["HOME"] = str(folder)  # without settings; asv keeps one about the machine
    done = subprocess.run(
        command.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in {0, int(may_fail)}:
        raise SystemExit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode, done.stdout + done.stderr


def source(branch: str) -> str:
    """The functions in that commit."""
    more = 1.1 if branch == "slower" else 1
    each = (f"def {name}(): return sum(range({size * more:.0f}))\n" for name, size in SIZES.items())
    return f'"""The {branch}."""\n{"".join(each)}'


def effect(name: str) -> float:
    """By how much the slower function is slower: the shortest of calls by turns."""
    calls = [Timer(f"{name}()", source(branch)) for branch in ("base", "slower")]
    turns = [[call.timeit(1) for call in calls] for _ in range(40_000_000 // SIZES[name])]
    base_s, slower_s = (min(turn[at] for turn in turns) for at in range(len(calls)))
    return slower_s / base_s - 1


def create(folder: Path) -> None:
    """Commit the suites of all tools, and the three versions of the functions."""
    (folder / "asv_suites").mkdir()
    for path, text in FILES.items():
        (folder / path).write_text(text, "utf-8")
    for path, (first, line) in LINES.items():
        for suite, names in SUITES.items():
            lines = [line.format(f"{name}_{at}", name) for at, name in enumerate(names)]
            (folder / path.format(suite)).write_text("\n".join([first, *lines, ""]), "utf-8")
    shell(folder, "git init -q")
    for branch in ("base", *HEADS):
        (folder / "work.py").write_text(source(branch), "utf-8")
        shell(folder, f"git checkout -q -b {branch}")
        shell(folder, "git add --all --force")
        shell(folder, f"git -c user.name=peers -c user.email=@ commit -q -m {branch}")
    shell(folder, "git checkout -q base")


def costs(folder: Path) -> str:
    """A row for each tool: wall and processor time of one benchmark and of twenty."""
    rows = []
    for command in COSTS:
        cells = []
        for suite in ("one", "twenty"):
            taken: list[tuple[float, float]] = []
            while len(taken) < 3 and sum(wall_s for wall_s, _ in taken) < 30:
                before = os.times()
                shell(folder, command.format(suite))
                after = os.times()
                taken.append((after[4] - before[4], sum(after[2:4]) - sum(before[2:4])))
            cells += [f"{median(seconds):.1f} s" for seconds in zip(*taken, strict=True)]
        rows.append((f"`{command.format('…')}`", *cells))
        print(*rows[-1], flush=True)
    return pages.markdown(("", "one, wall", "processor", "twenty, wall", "processor"), rows)


def gates(folder: Path, repeats: int) -> str:
    """A row for each rule: how often it called which function slower."""
    for _ in range(10):
        shell(folder, "python -m pytest -q test_gpubench_both.py")
    runs = " ".join(path.name for path in folder.glob("results/default/*_run_*"))
    shell(folder, f"{PIN} {runs}")
    counts, walls_s = Counter[tuple[str, str, str]](), defaultdict[str, list[float]](list)
    for turn, way in enumerate(TURNS * repeats):
        for head in HEADS[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            *before, last = way.commands.replace("HEAD", head).splitlines()
            for command in before:
                shell(folder, command)
            code, said = shell(folder, last, may_fail=True)
            wall_s = time.perf_counter() - start
            shell(folder, "git checkout -q base")
            found = {rule: set(re.findall(how, said, re.M)) for rule, how in way.rules.items()}
            if way.fails and code != any(found.values()):
                raise SystemExit(f"{last}: exit code {code}, but {found}\n{said}")
            print(turn, head, f"{wall_s:.1f} s", found, flush=True)
            for rule, names in found.items():
                walls_s[rule].append(wall_s)
                counts.update((rule, head, name) for name in names)
    rows = []
    for rule, walls in walls_s.items():
        each = [counts[rule, head, name] for head in HEADS for name in SIZES]
        cells = [f"{count} of {len(walls) // len(HEADS)}" for count in each]
        rows.append((rule, *cells, f"{median(walls):.0f} s"))
    titles = ("", "alarms, 10 µs", "alarms, 10 ms", "found, 10 µs", "found, 10 ms", "wall")
    return pages.markdown(titles, rows)


def installs(folder: Path) -> str:
    """A row for each tool: what pip puts into an empty folder."""
    rows = list[tuple[str, ...]]()
    shell(folder, f"python -m pip wheel -q --no-deps -w wheels {pages.ROOT}")
    (wheel,) = folder.glob("wheels/*.whl")
    for tool in [*PEERS, f"{wheel}"]:
        target, start = folder / f"installed_{len(rows)}", time.perf_counter()
        shell(folder, f"python -m pip install -q --no-cache-dir --target={target} {tool}")
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        count = len([*target.glob("*.dist-info")])
        rows.append((Path(tool).name, f"{count}", f"{size / 1e6:.0f} MB", f"{seconds:.0f} s"))
    return pages.markdown(("", "packages", "on disk", "installed in"), rows)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    load, began = os.getloadavg()[0], time.perf_counter()
    with TemporaryDirectory() as name:
        folder = Path(name)
        create(folder)
        shell(folder, "python -m asv machine --yes")
        shell(folder, "python -m asv run --bench=^one slower")
        ready_s = time.perf_counter() - began
        parts = {"costs": costs(folder), "gates": gates(folder, repeats)}
        parts["installs"] = installs(folder)
    parts["run"] = (
        f"{datetime.now(UTC).date()}: `python tools/evidence/peers.py --repeats={repeats}`, "
        f"{(time.perf_counter() - began) / 60:.0f} minutes. {cpu_model()}, {os.cpu_count()} "
        f"processors, a load of {load:.1f} when it began. Python {python_version()}, "
        f"{', '.join(PEERS)}, gpubench at {shell(pages.ROOT, 'git describe --always')[1].strip()}. "
        f"asv was ready after {ready_s:.0f} s. The slower functions are slower by "
        f"{effect('small'):.1%} (10 µs) and {effect('large'):.1%} (10 ms).\n"
    )
    commands = "\n\n".join(dict.fromkeys(way.commands for way in TURNS))
    parts["commands"] = f"```bash\n{commands}\n```\n"
    page = (pages.ROOT / "docs/evidence/peers.md").read_text("utf-8")
    for part, text in parts.items():
        before, comment, after = page.partition(f"<!-- {part} -->\n")
        page = f"{before}{comment}\n{text}\n{after[after.index('<!-- end -->') :]}"
    pages.save("peers.md", page)


if __name__ == "__main__":
    main()
