"""Which doubt touches which number, and minima over unequal rounds: docs/evidence/doubts.md.

    python tools/evidence/doubts.py

Takes a minute. What is simulated are the rounds of a step of 1 ms: as many as a second holds, with
skewed noise of 1%, disturbed as the flag's condition says, mildly to heavily.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.compare.comparison import compare_runs
from gpubench_plugin.core.records import Metric, Observation, Result, Run, Samples, Work
from gpubench_plugin.measure.interval import Autocorrelation
from gpubench_plugin.measure.metrics.step_time import step_time
from tools.evidence.pages import ROOT, markdown, save

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Disturb = Callable[[np.random.Generator, Floats], Floats]

PAIRS: Final = 400
LIMITS: Final = {"minimum": 0.02, "median": 0.02, "mean": 0.05}
SLICE_S: Final = 0.003
TRUE_EFFECT: Final = 1.2

INTRODUCTION: Final = """# Which doubt touches which number

Written by `python tools/evidence/doubts.py`; seeded. Two runs of one step are compared by the
default limits (2%, of the mean 5%). *Wrong*: nothing changed, and the number alone would have said
`regressed` or `improved`. *Missed*: the head is 20% slower, and it would not have said
`regressed`. The head is disturbed, the base is not, or the other way round.
"""
TOUCHED: Final = """
A number that a doubt makes wrong or missed in more than 2% of the pairs decides nothing. The
minimum is left by `suspended`, and by `contended` where a call is no longer than 2 ms; the median
by `suspended`. What is not a time (memory, accuracy) is left by all that disturb the clock.

## Dependence that shows

Only measurements that are flagged `dependent`, as those above need not be: they show their phases,
and their fastest calls were in the fast ones. *By the limit*: the minimum alone. *Beside
`contended`* it decides, with an interval of 5% at least ([recorded](busy_machine.md)).
"""
LENGTHS: Final = """
## Contention and the length of a call

Beside three processes on each processor, with time slices of 3 ms: longer calls never have a clean
minimum, however many they are.
"""
UNEVEN: Final = """
## Minima over unequal numbers of rounds

10 rounds against 187. `compare` compares the typical minima of 8 of them.
"""
COVERAGE: Final = """
The interval of a minimum is three times what the typical minimum fell when the rounds were last
doubled, up and down, and 5% at least beside other processes. How often the former holds the mean
minimum of so many rounds, and its median half-width:
"""
RECORDED: Final = """
## Recorded launches

Neighbouring launches of fresh processes, 160 rounds each, by the default limits: by the limit
alone, as before, and with intervals that must be clear of it.
"""


def noise(draws: np.random.Generator, rounds: int, *, step_s: float = 0.001) -> Floats:
    """Rounds of a step: a floor with skewed noise of about 1%."""
    return step_s * (1 + 0.01 * draws.gamma(2.0, 0.7, rounds))


def normal_noise(draws: np.random.Generator, rounds: Floats) -> Floats:
    """Normal noise of 2% on top, which has no floor."""
    noisy: Floats = rounds * draws.normal(1, 0.02, len(rounds))
    return noisy


def contended(neighbours: int) -> Disturb:
    """Time slices in turn with so many other processes on each processor."""

    def disturb(draws: np.random.Generator, rounds: Floats) -> Floats:
        ends = draws.uniform(0, SLICE_S) + np.cumsum(rounds)
        turns = np.diff(np.floor(ends / SLICE_S), prepend=0)
        waits = SLICE_S * neighbours * draws.uniform(0.7, 1.3, len(rounds))
        slowed: Floats = rounds + turns * waits
        return slowed

    return disturb


def throttled(draws: np.random.Generator, rounds: Floats) -> Floats:
    """Slower clocks from some time on, or all the time."""
    start = max(0.0, draws.uniform(-0.5, 0.9)) * len(rounds)
    slowed: Floats = np.where(np.arange(len(rounds)) < start, 1, draws.uniform(1.05, 1.4)) * rounds
    return slowed


def unsteady(draws: np.random.Generator, rounds: Floats) -> Floats:
    """A warm-up that takes as long as the measurement."""
    decay = np.exp(-np.linspace(0, 1, len(rounds)) / draws.uniform(0.3, 2.0))
    slowed: Floats = (1 + draws.uniform(0.05, 0.5) * decay) * rounds
    return slowed


def drifting(draws: np.random.Generator, rounds: Floats) -> Floats:
    """A trend of up to 30% in either direction, which had begun before the first round."""
    start, end = draws.uniform(0.0, 0.3, 2)
    slowed: Floats = (1 + np.linspace(start, end, len(rounds))) * rounds
    return slowed


def dependent(draws: np.random.Generator, rounds: Floats) -> Floats:
    """Two modes that last for a third of the measurement and longer."""
    dwell = len(rounds) * draws.uniform(0.33, 2)
    changes = draws.random(len(rounds)) < 1 / dwell
    mode = (np.cumsum(changes) + draws.integers(2)) % 2
    slowed: Floats = (1 + draws.uniform(0.05, 0.3) * mode) * rounds
    return slowed


def wandering(draws: np.random.Generator, rounds: Floats) -> Floats:
    """A random walk up from the floor."""
    walk = np.cumsum(draws.normal(size=len(rounds)))
    slowed: Floats = (1 + draws.uniform(0.02, 0.1) * np.abs(walk) / walk.std()) * rounds
    return slowed


def correlated(draws: np.random.Generator, rounds: Floats) -> Floats:
    """AR(1), skewed, with a time constant of a twentieth of the measurement and longer."""
    phi = np.exp(-1 / (len(rounds) * draws.uniform(0.05, 0.3)))
    value, values = draws.normal(), []
    for change in draws.normal(0, np.sqrt(1 - phi**2), len(rounds)):
        value = phi * value + change
        values.append(value)
    slowed: Floats = (1 + draws.uniform(0.01, 0.04) * np.exp(values)) * rounds
    return slowed


def suspended(draws: np.random.Generator, rounds: Floats) -> Floats:
    """Stopped for 0.2 to 5 s."""
    slowed = rounds.copy()
    slowed[draws.integers(len(rounds))] += draws.uniform(0.2, 5)
    return slowed


def instrumented(draws: np.random.Generator, rounds: Floats) -> Floats:
    """Every call is traced."""
    slowed: Floats = draws.uniform(1.02, 2) * rounds
    return slowed


def untouched(_: np.random.Generator, rounds: Floats) -> Floats:
    """Nothing."""
    return rounds


def numbers(rounds: Floats) -> dict[str, float]:
    """What is judged."""
    return {"minimum": rounds.min(), "median": float(np.median(rounds)), "mean": rounds.mean()}


def touched(disturb: Disturb, *, step_s: float = 0.001) -> Sequence[str]:
    """Cells of a row: wrong and missed, for each number."""
    draws = np.random.default_rng(41)
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    rounds = max(10, round(1 / step_s))
    for pair in range(PAIRS):
        clean = noise(draws, rounds, step_s=step_s)
        other = noise(draws, rounds, step_s=step_s)
        for truth, counts in ((1.0, wrong), (TRUE_EFFECT, missed)):
            scaled = truth * other
            if pair % 2:
                base, head = numbers(disturb(draws, clean)), numbers(scaled)
            else:
                base, head = numbers(clean), numbers(disturb(draws, scaled))
            for name, limit in LIMITS.items():
                change = head[name] / base[name] - 1
                counts[name] += change < limit if truth > 1 else abs(change) >= limit
    return [f"{counts[name] / PAIRS:.0%}" for name in LIMITS for counts in (wrong, missed)]


def measured(rounds: Floats, flags: Sequence[str] = ()) -> Result:
    """What a run tells of these rounds."""
    samples = Samples(
        timer="perf_counter_ns",
        durations_s=tuple(map(float, rounds)),
        block_s=tuple(map(float, rounds)),
        block_calls=(1,) * len(rounds),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    observation = Observation(
        samples=samples, work=Work(), device="cpu", device_name="", precision="", world_size=1
    )
    metrics = {metric.name: metric for metric in step_time(observation)}
    return Result(
        id="b", outcome="measured", timer=samples.timer, metrics=metrics, flags=tuple(flags)
    )


def kinds(
    pairs: Sequence[tuple[Floats, Floats]], flags: Sequence[str] = (), *, allow_doubt: bool = False
) -> Counter[str]:
    """Verdicts of ``gpubench compare`` on the pairs."""
    counts: Counter[str] = Counter()
    for sides in pairs:
        base, head = (
            Run(label=label, results={"b": measured(rounds, flags)})
            for label, rounds in zip(("base", "head"), sides, strict=True)
        )
        (verdict,) = compare_runs(base, head, allow_doubt=allow_doubt).verdicts
        counts[verdict.kind] += 1
    return counts


KINDS: Final = ("regressed", "improved", "unchanged", "inconclusive")


def shares(counts: Counter[str]) -> list[str]:
    """Cells: the share of each verdict."""
    return [f"{counts[kind] / sum(counts.values()):.0%}" for kind in KINDS]


def uneven_rows() -> Sequence[Sequence[str]]:
    """Few rounds against many, of one step and of one that is 20% slower."""
    rows = []
    for title, disturb, flags in (
        ("quiet", untouched, ()),
        ("normal noise of 2%", normal_noise, ()),
        ("three processes on each processor", contended(3), ("contended",)),
    ):
        for truth in (1.0, TRUE_EFFECT):
            draws = np.random.default_rng(10)
            pairs = []
            for pair in range(PAIRS):
                counts = (10, 187) if pair % 2 else (187, 10)
                base, head = (disturb(draws, noise(draws, n)) for n in counts)
                pairs.append((base, truth * head))
            raw = Counter(raw_kind(head.min() / base.min() - 1) for base, head in pairs)
            name = f"{title}, {'20% slower' if truth > 1 else 'nothing changed'}"
            rows.append((f"{name}: minima alone", *shares(raw)))
            rows.append((f"{name}: `compare`", *shares(kinds(pairs, flags))))
    return rows


def raw_kind(change: float) -> str:
    """What the limit alone says of the minima."""
    return "regressed" if change >= 0.02 else "improved" if change <= -0.02 else "unchanged"


def dependent_rows() -> Sequence[Sequence[str]]:
    """Measurements that show their dependence against clean ones, equal and 20% slower."""
    rows = []
    for title, disturb in PHASES.items():
        for count in (80, 300, 1000):
            draws = np.random.default_rng(count)
            pairs: list[tuple[Floats, Floats]] = []
            while len(pairs) < PAIRS:
                clean, other = (noise(draws, count) for _ in range(2))
                disturbed = disturb(draws, other)
                if Autocorrelation(disturbed.tolist()).hides_interval(0.95):
                    pairs.append((clean, disturbed) if len(pairs) % 2 else (disturbed, clean))
            raw = Counter(raw_kind(head.min() / base.min() - 1) for base, head in pairs)
            slower = [(base, TRUE_EFFECT * head) for base, head in pairs]
            equal, found = (kinds(each, ("contended", "dependent")) for each in (pairs, slower))
            wrong = (each["regressed"] + each["improved"] for each in (raw, equal))
            cells = (f"{each / PAIRS:.1%}" for each in (*wrong, found["regressed"]))
            rows.append((f"{title}, {count} rounds", *cells))
    return rows


def coverage_rows() -> Sequence[Sequence[str]]:
    """How often the interval of the minimum holds the minimum that is expected of its rounds."""
    rows = []
    for title, disturb in (
        ("quiet", untouched),
        ("normal noise of 2%", normal_noise),
        ("three processes", contended(3)),
    ):
        for count in (10, 40, 187, 500):
            draws = np.random.default_rng(count)
            drawn = [disturb(draws, noise(draws, count)) for _ in range(PAIRS)]
            truth = float(np.mean([rounds.min() for rounds in drawn]))
            held, widths = 0, []
            for rounds in drawn:
                values = sorted(metric.value for metric in minima_of(rounds))
                fall = 3 * (values[1] - values[0])
                held += abs(rounds.min() - truth) <= fall
                widths.append(fall / rounds.min())
            rows.append(
                (f"{title}, {count} rounds", f"{held / PAIRS:.0%}", f"{np.median(widths):.2%}")
            )
    return rows


def minima_of(rounds: Floats) -> list[Metric]:
    """The typical minima that are recorded."""
    return [m for m in measured(rounds).metrics.values() if "_min_of_" in m.name]


def recorded_rows() -> Sequence[Sequence[str]]:
    """Recorded launches of fresh processes, in order: neighbours as base and head."""
    path = ROOT / "tests" / "support" / "data" / "launches.json"
    launches: Mapping[str, list[list[int]]] = json.loads(path.read_text(encoding="utf-8"))[
        "launches"
    ]
    rows = []
    for truth, title in ((1.0, "nothing changed"), (TRUE_EFFECT, "20% slower")):
        pairs = [
            (np.array(base) * 1e-9, np.array(head) * 1e-9 * truth)
            for of_benchmark in launches.values()
            for base, head in pairwise(of_benchmark)
        ]
        rows.append((f"{title}, before", *shares(kinds(pairs, allow_doubt=True))))
        rows.append((f"{title}, now", *shares(kinds(pairs))))
    return rows


PHASES: Final[Mapping[str, Disturb]] = {
    "two modes": dependent,
    "random walk": wandering,
    "AR(1)": correlated,
}
DOUBTS: Final[Mapping[str, Disturb]] = {
    "none": untouched,
    "contended, one other process": contended(1),
    "contended, three": contended(3),
    "throttled": throttled,
    "unsteady": unsteady,
    "drifting": drifting,
    "dependent": dependent,
    "suspended": suspended,
    "instrumented": instrumented,
}


def main() -> None:
    """Write the page."""
    titles = [f"{name} {what}" for name in LIMITS for what in ("wrong", "missed")]
    by_doubt = [(name, *touched(disturb)) for name, disturb in DOUBTS.items()]
    phases = dependent_rows()
    by_length = [
        (f"{step_s * 1000:g} ms", *touched(contended(3), step_s=step_s))
        for step_s in (0.0005, 0.001, 0.002, 0.004, 0.008, 0.05)
    ]
    save(
        "doubts.md",
        INTRODUCTION,
        markdown(("steps of 1 ms", *titles), by_doubt),
        TOUCHED,
        markdown(("", "by the limit: wrong", "beside `contended`: wrong", "found"), phases),
        LENGTHS,
        markdown(("call", *titles), by_length),
        UNEVEN,
        markdown(("", *KINDS), uneven_rows()),
        COVERAGE,
        markdown(("", "held", "half-width"), coverage_rows()),
        RECORDED,
        markdown(("", *KINDS), recorded_rows()),
    )


if __name__ == "__main__":
    main()
