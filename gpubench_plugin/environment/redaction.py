"""What is recorded of variables, arguments, texts and facts: no secrets, nor what a launcher set.

A false positive hides a harmless word, a false negative publishes a password: in doubt, a value is
a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

HIDDEN: Final = "***"

_RECORDED: Final = re.compile(
    r"""(CUDA|NVIDIA_TF32|CUBLAS|CUDNN|NCCL|GLOO|UCX|TORCH|TORCHINDUCTOR|TORCHDYNAMO|TORCHELASTIC
        |PYTORCH|TRITON|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|MALLOC|HIP|ROCR|MIOPEN
        |ZE|SYCL)_\w+
    |(TORCH|PYTORCH)\w*
    |(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT
    |SLURM_(JOB_ID|NNODES|NTASKS|CPUS_PER_TASK|GPUS_ON_NODE)
    |CI|LD_PRELOAD|PYTHONHASHSEED|TOKENIZERS_PARALLELISM|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE""",
    re.VERBOSE,
)
"""Recorded variables: those that affect the speed or precision of torch."""

_HARMLESS: Final = frozenset({"TOKENIZERS_PARALLELISM"})
_CERTAIN: Final = re.compile(
    r"secret|passw(or)?d|passphrase|credential|private|cookie|bearer|apikey"
)
_AMBIGUOUS: Final = re.compile(r"(token|key|auth|authorization|pwd)$")
_NUMBER: Final = re.compile(r"[+-]?\d{1,9}(\.\d*)?|true|false|null|none", re.IGNORECASE)
_URL_CREDENTIALS: Final = re.compile(
    r"""(?<=://)([^\s/?#@:]*:\S{0,500}|[^\s/?#]*|[^\s/?#@:]*:(?!\d+[\s/])[^\s@"'][^@"'\n]{0,100})@"""
)
"""In this order: a password, to the last @ of the word; a user or token alone; a password with
spaces, unless the text before the first of them is a port. Limits keep long texts linear."""
_SOLE_URL: Final = re.compile(r"\A([^\s:]*://)[^/?#@]*:.*@", re.DOTALL)
"""Text that is a URL as a whole, alone or behind an option: up to its last @."""
_URL_PASSWORD: Final = re.compile(r"://[^\s/?#@:]*:([^\s@]+)@")
_URL_PARAMETER: Final = re.compile(r"(?<=[?&;])([\w.-]+)=([^&\s]*)")
_PAIR: Final = re.compile(
    r"(?i)((?<![\w.-])[\w.-]{0,40}(secret|passw|credential|api_?key)[\w.-]{0,40}=)('[^']*'|[^&;\s]+)"
)
_KNOWN_TOKEN: Final = re.compile(
    r"""\b( gh[pousr]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{16,} | hf_[A-Za-z0-9]{16,}
        | sk-(?=[\w-]{0,99}\d)(?=[\w-]{0,99}[A-Z])[\w-]{16,}
        | xox[abprs]-[\w-]{10,} | (AKIA|ASIA)[0-9A-Z]{16} | eyJ[\w-]{8,}\.[\w-]+\.[\w-]* )""",
    re.VERBOSE,
)
"""Prefixes by which GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS and JWT mark their tokens."""

THREADS: Final = "OMP_NUM_THREADS"
"""The user's, which is obeyed, or what a launcher set instead."""

THREADS_SHARE: Final = "GPUBENCH_OMP_NUM_THREADS"
"""Environment variable with the number that a gang set, since the user had set none."""

_TORCHRUN: Final = "TORCHELASTIC_RUN_ID"


def recorded_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables to record: the user's, allow-listed and without secrets."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if _RECORDED.fullmatch(name)
        and (name in _HARMLESS or not is_secret_name(name))
        and redact(value) == value
        and not (name == THREADS and is_set_by_launcher(environ))
    }


def is_set_by_launcher(environ: Mapping[str, str]) -> bool:
    """Whether a gang or torchrun set the variable, which the user had left open.

    torchrun sets 1 for several ranks (``torch/distributed/run.py``). So 1 is its own if torchrun,
    the first ancestor that is no rank of it, began without the variable; where the system does not
    tell, it is the user's.
    """
    value = environ.get(THREADS, "")
    if value != "1" or _TORCHRUN not in environ:
        return bool(value) and value == environ.get(THREADS_SHARE)
    import psutil

    with suppress(psutil.Error, OSError):
        began_with = (process.environ() for process in psutil.Process().parents())
        outside = next((begin for begin in began_with if _TORCHRUN not in begin), {THREADS: value})
        return THREADS not in outside
    return False


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or key named `name` probably holds a secret."""
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return _is_certain_secret(name) or any(_AMBIGUOUS.search(part) for part in parts)


def redact(text: str) -> str:
    """Remove credentials in URLs, values of secret keys and well-known tokens from `text`."""
    text = _URL_CREDENTIALS.sub(f"{HIDDEN}@", _SOLE_URL.sub(rf"\1{HIDDEN}@", text))
    text = _URL_PARAMETER.sub(lambda m: f"{m[1]}={HIDDEN}" if _hides(*m.groups()) else m[0], text)
    text = _PAIR.sub(rf"\1{HIDDEN}", text)
    return _KNOWN_TOKEN.sub(HIDDEN, text)


def redact_facts(facts: Any) -> Any:
    """Remove secrets from JSON `facts`: what secret keys have, and from texts as :func:`redact`."""
    if isinstance(facts, dict):
        return {k: HIDDEN if _hides(k, str(v)) else redact_facts(v) for k, v in facts.items()}
    if isinstance(facts, list):
        return [redact_facts(fact) for fact in facts]
    return redact(facts) if isinstance(facts, str) else facts


def find_passwords(texts: Iterable[str]) -> set[str]:
    """Passwords in the URLs of `texts`, as written and decoded."""
    encoded = {match[1] for text in texts for match in _URL_PASSWORD.finditer(text)}
    return encoded | {unquote(password) for password in encoded}


def redacted_command(arguments: Iterable[str]) -> tuple[str, ...]:
    """Command arguments with every secret replaced by ``***``.

    Secrets are recognized by their option or key (``--api-key=…``, ``--api-key …``, ``--set
    data.token=…``), in URLs, and by their form. A plain number after an ambiguous name stays, as in
    ``--model.num_key_value_heads=8``.
    """
    redacted_arguments: list[str] = []
    value_is_secret = False
    for argument in arguments:
        hide = value_is_secret and not argument.startswith("-")
        redacted_arguments.append(HIDDEN if hide else _redacted_argument(argument))
        value_is_secret = (
            argument.startswith("-") and "=" not in argument and is_secret_name(argument)
        )
    return tuple(redacted_arguments)


def _redacted_argument(argument: str) -> str:
    """`argument`, cut at the first key that names a secret; ``--set=data.token=…`` has two keys."""
    for separator in re.finditer("=", argument):
        name, value = argument[: separator.start()], argument[separator.end() :]
        if "://" not in name and value and _hides(name.rpartition("=")[2], value):
            return f"{redact(name)}={HIDDEN}"
    return redact(argument)


def _hides(name: str, value: str) -> bool:
    """Whether the `value` of the key `name` is one; a number of an ambiguous one is none."""
    is_ambiguous = is_secret_name(name) and not _NUMBER.fullmatch(value)
    return is_ambiguous or _is_certain_secret(name)


def _is_certain_secret(name: str) -> bool:
    return bool(_CERTAIN.search(re.sub(r"[^a-z0-9]", "", name.lower())))
