"""Which models are measured by their names alone: a suite that is a folder of YAML files.

    python tools/evidence/models.py [-k EXPRESSION]

Well-known architectures of transformers, timm and torchvision, where these are installed, with
random weights, shrunken, on a CPU: a configuration each, one test file for all, an inference and a
training step of each in one session of pytest. ``docs/evidence/models.md`` gets a row for each,
with the reason where it is not measured. Nothing is downloaded. Exit code 1 where fewer are
measured than have been.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import yaml

sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin import load_run
from gpubench_plugin.core.format import count
from gpubench_plugin.core.records import Measurement
from tools.evidence.pages import markdown, save

# By library and family. Those that cannot be measured stay, with their reasons.
MODELS: Final[Mapping[str, Mapping[str, str]]] = {
    "hf": {
        "encoder": "albert bert big_bird deberta-v2 distilbert electra longformer modernbert "
        "roberta",
        "decoder": "bloom falcon gemma2 gemma4_text gpt2 gpt_neox llama mistral olmo2 opt phi3 "
        "qwen3",
        "mixture of experts": "deepseek_v3 gpt_oss mixtral olmoe qwen3_moe switch_transformers",
        "state space, recurrent": "jamba mamba mamba2 recurrent_gemma rwkv",
        "encoder-decoder": "bart led m2m_100 marian pegasus t5",
        "vision": "beit convnextv2 deit dinov2 mobilevit resnet segformer swin vit",
        "detection, depth": "depth_anything detr mask2former sam",
        "audio": "audio-spectrogram-transformer clap encodec hubert speech_to_text wav2vec2 "
        "whisper",
        "video": "timesformer videomae vivit",
        "image and text": "blip blip-2 clip gemma3 layoutlmv3 llava paligemma qwen2_vl siglip vilt",
        "time series": "patchtst time_series_transformer",
    },
    "timm": {
        "convolutional": "convnext_tiny densenet121 dla34 efficientnet_b0 hrnet_w18 inception_v3 "
        "mobilenetv3_large_100 nfnet_f0 regnety_016 resnet50 resnext50_32x4d vgg16",
        "transformer": "beit_base_patch16_224 cait_s24_224 deit_base_patch16_224 "
        "eva02_base_patch14_224 swin_tiny_patch4_window7_224 vit_base_patch16_224",
        "hybrid, perceptron": "coatnet_0_rw_224 efficientformer_l1 levit_256 maxvit_tiny_tf_224 "
        "mixer_b16_224 mobilevit_s",
    },
    "torchvision": {
        "convolutional": "alexnet convnext_tiny densenet121 efficientnet_b0 googlenet "
        "mobilenet_v3_large regnet_y_400mf resnet50 shufflenet_v2_x1_0 squeezenet1_1 vgg16",
        "transformer": "maxvit_t swin_t vit_b_16",
        "segmentation, detection": "fasterrcnn_resnet50_fpn fcn_resnet50 lraspp_mobilenet_v3_large",
        "video, flow": "r3d_18 raft_small swin3d_t",
    },
}
LEAST: Final = {"hf": 40, "timm": 20, "torchvision": 10}
"""Models of a library that must be measured in both ways."""
MODES: Final = {"infer": "inference", "train": "trainer"}
"""Ways to measure, with their fixtures."""
TEST: Final = '''"""A model per file of configs/."""

from pathlib import Path

import pytest

MODELS = [
    pytest.param(path.stem, marks=pytest.mark.gpubench(config=path.stem))
    for path in sorted(Path(__file__).parent.glob("configs/*.yaml"))
]
'''
CASE: Final = """

@pytest.mark.parametrize("name", MODELS)
def test_{mode}(gpubench, {fixture}, name):
    gpubench({fixture})
"""


def main(keyword: str) -> int:
    """Measure them and write the page; 1 if a library has fewer models than it should."""
    libraries = {"hf": "transformers", "timm": "timm", "torchvision": "torchvision"}
    found = {kind: name for kind, name in libraries.items() if find_spec(name)}
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        write_suite(project, found)
        start = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "--device=cpu"]
        command += ["-p", "no:cacheprovider", "--results-dir=results", "--experiment=models"]
        subprocess.run([*command, *(["-k", keyword] if keyword else [])], cwd=project, check=False)
        minutes = (time.perf_counter() - start) / 60
        (run,) = (project / "results" / "models").iterdir()
        record = load_run(run)
    rows = {kind: [*_rows(kind, record.benchmarks)] for kind in found}
    measured = {kind: sum(is_both for is_both, _ in of) for kind, of in rows.items()}
    if keyword:  # to look at
        sys.stdout.write(markdown(("",) * 5, (cells for of in rows.values() for _, cells in of)))
        return 0
    save("models.md", *_page(rows, measured, found, minutes))
    return int(any(measured.get(kind, 0) < least for kind, least in LEAST.items()))


def write_suite(project: Path, kinds: Iterable[str]) -> None:
    """A configuration for each model of these libraries, and the tests of all of them."""
    configurations = project / "configs"
    configurations.mkdir()
    for kind in kinds:
        for names in MODELS[kind].values():
            for name in names.split():
                keys = {
                    "model": {"name": kind, "source": name, "shrink": True},
                    "measure": {"profile": "quick"},
                }
                path = configurations / f"{_stem(kind, name)}.yaml"
                path.write_text(yaml.safe_dump(keys, sort_keys=False), encoding="utf-8")
    cases = [CASE.format(mode=mode, fixture=fixture) for mode, fixture in MODES.items()]
    (project / "test_models.py").write_text("".join([TEST, *cases]), encoding="utf-8")
    (project / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def _stem(kind: str, name: str) -> str:
    return f"{kind}-{name}"


def _rows(kind: str, benchmarks: Sequence[Measurement]) -> Iterator[tuple[bool, Sequence[str]]]:
    """Cells of each model that was chosen, and whether it was measured in both ways."""
    by_case = {(b.params["name"], b.name.partition("[")[0]): b for b in benchmarks}
    for family, names in MODELS[kind].items():
        for name in names.split():
            of = [by_case.get((_stem(kind, name), f"test_{mode}")) for mode in MODES]
            if not (seen := [b for b in of if b is not None]):
                continue
            sizes = [b.settings["model.parameters"] for b in seen if b.outcome == "measured"]
            parameters = count(sizes[0]) if sizes else ""
            reason = next((_line(b) for b in seen if b.outcome != "measured"), "")
            cells = (f"`{kind}:{name}`", family, parameters, *map(_cell, of), reason)
            yield len(seen) == len(MODES) and not reason, cells


def _cell(benchmark: Measurement | None) -> str:
    """The median step, which decides nothing here, or the outcome."""
    if benchmark is None or benchmark.outcome != "measured":
        return "" if benchmark is None else benchmark.outcome
    milliseconds = float(f"{benchmark.metrics['step_time_s'].value * 1e3:.3g}")
    return f"≈ {milliseconds:,g} ms"


def _line(benchmark: Measurement) -> str:
    """Why it was not measured, in a cell."""
    line = benchmark.reason.partition("\n")[0].replace("|", "\\|").replace("<", "&lt;")
    return re.sub(r"(/[\w.-]+){2,}/", "…/", line)


def _page(
    rows: Mapping[str, Sequence[tuple[bool, Sequence[str]]]],
    measured: Mapping[str, int],
    libraries: Mapping[str, str],
    minutes: float,
) -> Iterator[str]:
    of = sum(map(len, rows.values()))
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", *libraries.values()))
    yield (
        "# Models by their names\n\n"
        "Written by `python tools/evidence/models.py`: a folder with one YAML file per model, "
        "`model: {name: hf, source: bert, shrink: true}`, and one test file for all. An inference "
        "and a training step of each, with random weights and inputs, are measured in one session "
        "on a CPU. Nothing is downloaded: configurations are the default of the model's type.\n\n"
        f"**{sum(measured.values())} of {of} models are measured in both ways**"
        f" in {minutes:.0f} minutes. {versions}; Python {platform.python_version()}, "
        f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the end. The "
        "machine was shared: times show what is measured, not how fast it is.\n"
    )
    columns = ("model", "family", "parameters", "inference step", "training step", "why not")
    for kind, name in libraries.items():
        title = f"## {name}: {measured[kind]} of {len(rows[kind])}\n"
        yield f"{title}\n{markdown(columns, (cells for _, cells in rows[kind]))}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-k", metavar="EXPRESSION", default="", help="those alone, and no page")
    sys.exit(main(parser.parse_args().k))
