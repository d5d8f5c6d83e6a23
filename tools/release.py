"""Everything about a release but publishing it: ``tox -e release``.

    python -m tools.release         # rehearse the topmost section of CHANGELOG.md
    python -m tools.release 0.2.0   # this one: its section has a date, its tag is HEAD's or free

Both build HEAD, twice and from fresh clones, and leave wheel and sdist in ``dist/``. The files are
checked, and the wheel is tried in an environment of its own outside of the checkout. Where the
topmost section is *Unreleased*, the version is the development version that git gives HEAD.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import package_contents

ROOT = Path(__file__).parents[1]
SECTION = re.compile(
    r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?.*$", re.MULTILINE
)
UNRELEASED = "Unreleased"
SUITE = """
import os
import pytest

@pytest.mark.gpubench(limits={"step_time_min_s": "<=0.001"})
def test_sum(gpubench):
    numbers = range(int(os.environ["NUMBERS"]))
    gpubench(lambda: sum(numbers))

def test_adopted(benchmark):
    assert benchmark(sorted, [3, 1, 2]) == [1, 2, 3]
"""
SESSION = "python -m pytest benchmarks --adopt --measure.profile=quick"
JOB = (
    (SESSION, "1000", 0, "2 measured"),
    ("gpubench baseline set main last --force --reason=doubts", "", 0, "main"),
    (f"{SESSION} --baseline=main --gate --allow-doubt", "1000", 0, "2 measured"),
    (f"{SESSION} --baseline=main --gate --allow-doubt", "1000000", 1, "breaks <=0.001"),
    ("gpubench compare main last --allow-doubt", "", 1, "breaks <=0.001"),
)
"""Commands, the numbers that a step adds up, exit codes, and what the output tells."""


class ReleaseError(Exception):
    """What keeps this from being released."""


def run(*words: str | Path, cwd: Path = ROOT, **environ: str) -> str:
    """Standard output of a command that succeeds."""
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def section(text: str, wanted: str | None) -> tuple[str, str]:
    """Version and notes of the `wanted` section of the changelog, by default the topmost."""
    headings = list(SECTION.finditer(text))
    for heading, end in zip(headings, [*(h.start() for h in headings[1:]), None], strict=True):
        if wanted in (None, heading["version"]):
            if wanted and not heading["date"]:
                raise ReleaseError(f"CHANGELOG.md: {heading[0]!r} has no date (YYYY-MM-DD)")
            notes = text[heading.end() : end].strip()
            if not notes:
                raise ReleaseError(f"CHANGELOG.md: {heading[0]!r} is empty")
            return heading["version"], notes
    raise ReleaseError(f"CHANGELOG.md has no section [{wanted or UNRELEASED}]")


def check_tree(root: Path, version: str) -> None:
    """Refuse what is not committed, a tag of another commit, and what states another version."""
    if changes := run("git", "status", "--porcelain", cwd=root):
        raise ReleaseError(f"not committed:\n{changes}")
    if version == UNRELEASED:
        return
    if run("git", "tag", "--list", f"v{version}", cwd=root):
        names = (f"v{version}^{{commit}}", "HEAD")
        tagged, head = (run("git", "rev-parse", name, cwd=root) for name in names)
        if tagged != head:
            raise ReleaseError(f"v{version} is {tagged}, not HEAD ({head})")
    stated = {"CITATION.cff": f"version: {version}", "pyproject.toml": fallback(version)}
    for name, line in stated.items():
        if f"\n{line}" not in (root / name).read_text(encoding="utf-8"):
            raise ReleaseError(f"{name} does not have the line {line!r}")


def fallback(version: str) -> str:
    """The line of `pyproject.toml` from the release before until this one is out."""
    return f'fallback-version = "{version}.dev0"'


def build(version: str, folder: Path) -> list[Path]:
    """Sdist of a clone of HEAD with the tag of `version`, and the wheel made from it."""
    run("git", "clone", "--quiet", ROOT, folder / "clone")
    if version != UNRELEASED:
        who = ("-c", "user.name=release", "-c", "user.email=", "-c", "tag.gpgsign=false")
        tag = ("tag", "--annotate", "--force", f"v{version}", "--message", version)
        run("git", *who, *tag, cwd=folder / "clone")
    date = run("git", "log", "-1", "--format=%ct")
    command = (sys.executable, "-m", "build", "--outdir", folder / "dist", folder / "clone")
    run(*command, cwd=folder, SOURCE_DATE_EPOCH=date)
    return sorted((folder / "dist").iterdir())


def check_files(version: str, built: list[Path], again: list[Path]) -> None:
    """Names, equality of two builds, metadata and contents."""
    wheel, sdist = sorted(built, key=lambda file: file.suffix != ".whl")
    names = [f"pytest_gpubench-{version}-py3-none-any.whl", f"pytest_gpubench-{version}.tar.gz"]
    if version != UNRELEASED and [wheel.name, sdist.name] != names:
        raise ReleaseError(f"built {wheel.name} and {sdist.name} instead of {' and '.join(names)}")
    for one, other in zip(built, again, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            raise ReleaseError(f"{one.name} is not {other.name} of a second build, byte for byte")
    run(sys.executable, "-m", "twine", "check", "--strict", *built)
    problems = [
        *package_contents.problems_of_wheel(wheel),
        *package_contents.problems_of_sdist(sdist),
    ]
    if problems:
        raise ReleaseError("\n".join(problems))


def try_wheel(wheel: Path, folder: Path) -> str:
    """Install the `wheel` alone, measure, gate, and compare; what the installation costs."""
    environment = folder / "environment"
    begin = time.monotonic()
    run(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    cost = f"{time.monotonic() - begin:.0f} s, {_megabytes(environment):.0f} MB"
    run(python, "-m", "pip", "check")
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "test_it.py").write_text(SUITE)
    environ = {
        name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ
    } | {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    for command, numbers, code, told in JOB:
        done = subprocess.run(
            command.split(),
            cwd=folder,
            env=environ | {"NUMBERS": numbers},
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        if done.returncode != code or told not in output:
            raise ReleaseError(
                f"{command} ended with {done.returncode} instead of {code}, or did not tell "
                f"{told!r}:\n{output}"
            )
    return cost


def _megabytes(folder: Path) -> float:
    return sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6


def main() -> int:
    """Print what was found, the notes, and the command that tags HEAD."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version", nargs="?", help="default: the topmost section's")
    try:
        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        version, notes = section(changelog, parser.parse_args().version)
        check_tree(ROOT, version)
        with TemporaryDirectory(prefix="gpubench-release-") as name:
            first, second, trial = (Path(name) / part for part in ("first", "second", "trial"))
            for folder in (first, second, trial):
                folder.mkdir()
            built = build(version, first)
            check_files(version, built, build(version, second))
            wheel = next(file for file in built if file.suffix == ".whl")
            cost = try_wheel(wheel, trial)
            shutil.rmtree(ROOT / "dist", ignore_errors=True)
            shutil.copytree(first / "dist", ROOT / "dist")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for file in sorted((ROOT / "dist").iterdir()):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"dist/{file.name}  {file.stat().st_size} bytes  sha256 {digest}")
    print(f"both builds are the same; the wheel measures, gates and compares; installed in {cost}")
    print(f"\n{notes}\n")
    if version == UNRELEASED:
        print("no release: name and date the topmost section of CHANGELOG.md")
    else:
        print(f"nothing is tagged or published yet: git tag -a v{version} -m {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
