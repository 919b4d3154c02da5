"""How many tokens a step yields, from what a benchmark or a server wrote down.

In: the result file of `vllm bench serve`, or a scrape of a vLLM server's metrics.
Out: an `Acceptance`. Two rates are kept apart: that of the median request, and all tokens
over all decode time, in which slow requests weigh by their tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tracebook.errors import RunDescriptionError

#: One sample of the Prometheus text format: name, labels, value.
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$")
_POSITION = re.compile(r'(?:^|,)\s*position="(\d+)"')
_MODEL = re.compile(r'(?:^|,)\s*model_name="((?:[^"\\]|\\.)*)"')
_DRAFTS = "vllm:spec_decode_num_drafts"
_DRAFTED = "vllm:spec_decode_num_draft_tokens"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
_INTERVALS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")


@dataclass(frozen=True)
class Acceptance:
    """What was measured of drafting; None where the file does not tell.

    Attributes:
        tokens_per_step: Tokens a step of one sequence yields, all steps together.
        draft_tokens: Drafts per step, K.
        per_position: Share of steps that accept the draft at each position.
        weighted_tokens_per_s: All tokens after the first over all decode time.
        median_tokens_per_s: The same of the median request.
        median_tokens_per_step: Tokens per step of the median request.
        requests: Requests that the medians are over.
        source: What kind of file it was, in words.
    """

    tokens_per_step: float | None
    draft_tokens: int | None = None
    per_position: tuple[float, ...] = ()
    weighted_tokens_per_s: float | None = None
    median_tokens_per_s: float | None = None
    median_tokens_per_step: float | None = None
    requests: int | None = None
    source: str = ""


def read_acceptance(path: str | Path) -> Acceptance:
    """Read a benchmark result (JSON) or a metrics scrape (text).

    Raises:
        RunDescriptionError: The file cannot be read, or tells nothing of drafting.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is binary, not text"
        raise RunDescriptionError(
            f"{path} cannot be read: {reason}.", "Give a number, or a benchmark or metrics file."
        ) from error
    found = _benchmark(path, text) if text.lstrip().startswith("{") else _metrics(path, text)
    if found.tokens_per_step is None:
        raise RunDescriptionError(
            f"{path} does not tell how many tokens a step yields.",
            "A benchmark result needs the spec_decode_* keys or --save-detailed; "
            f"a metrics scrape needs {_ACCEPTED}_total and its siblings.",
        )
    return found


def _benchmark(path: str | Path, text: str) -> Acceptance:
    """`vllm bench serve --save-result [--save-detailed]`."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise RunDescriptionError(f"{path} is not valid JSON: {error}.") from error
    drafts = _number(content, "spec_decode_num_drafts")
    accepted = _number(content, "spec_decode_accepted_tokens")
    drafted = _number(content, "spec_decode_draft_tokens")
    tokens = 1 + accepted / drafts if drafts and accepted is not None else None
    if tokens is None:
        # The acceptance length counts the token that the target adds.
        tokens = _number(content, "spec_decode_acceptance_length")
    decoded = _decoded(content)
    if tokens is None and decoded:
        tokens = sum(n for n, _, _ in decoded) / sum(steps for _, steps, _ in decoded)
    rates = content.get("spec_decode_per_position_acceptance_rates")
    tpot = _number(content, "median_tpot_ms")
    median_rate = median(n / s for n, _, s in decoded) if decoded else 1e3 / tpot if tpot else None
    return Acceptance(
        tokens_per_step=tokens,
        draft_tokens=_whole(drafted, drafts),
        per_position=tuple(float(rate) for rate in rates) if isinstance(rates, list) else (),
        weighted_tokens_per_s=_ratio(decoded),
        median_tokens_per_s=median_rate,
        median_tokens_per_step=median(n / steps for n, steps, _ in decoded) if decoded else None,
        requests=len(decoded) or None,
        source="vLLM benchmark result",
    )


def _decoded(content: Mapping[str, Any]) -> list[tuple[int, int, float]]:
    """Per request: tokens after the first, steps that made them, seconds they took.

    `itls` holds one interval for each piece of a stream, which is one step.
    """
    lengths, intervals = content.get("output_lens"), content.get("itls")
    if not isinstance(lengths, list) or not isinstance(intervals, list):
        return []
    return [
        (int(length) - 1, len(times), float(sum(times)))
        for length, times in zip(lengths, intervals, strict=False)
        if isinstance(times, list) and times and length > 1 and sum(times) > 0
    ]


def _ratio(decoded: list[tuple[int, int, float]]) -> float | None:
    return sum(n for n, _, _ in decoded) / sum(s for _, _, s in decoded) if decoded else None


def _metrics(path: str | Path, text: str) -> Acceptance:
    """Counters of a server, summed over its engines, since it was started."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    models: set[str] = set()
    for line in text.splitlines():
        match = _SAMPLE.match(line.strip())
        if match is None or not match[1].startswith("vllm:"):
            continue
        name, labels = match[1].removesuffix("_total"), match[2] or ""
        try:
            value = float(match[3])
        except ValueError:
            continue
        if name == _PER_POSITION and (position := _POSITION.search(labels)):
            positions[int(position[1])] = positions.get(int(position[1]), 0.0) + value
        if name in (_DRAFTS, _DRAFTED, _ACCEPTED) and (model := _MODEL.search(labels)):
            models.add(model[1])
        sums[name] = sums.get(name, 0.0) + value
    if len(models) > 1:
        raise RunDescriptionError(
            f"{path} holds counters of {len(models)} models.", "Keep the lines of one of them."
        )
    drafts, accepted = sums.get(_DRAFTS), sums.get(_ACCEPTED)
    seconds, steps = _intervals(sums)
    tokens = 1 + accepted / drafts if drafts and accepted is not None else None
    return Acceptance(
        tokens_per_step=tokens,
        draft_tokens=_whole(sums.get(_DRAFTED), drafts),
        per_position=tuple(positions[p] / drafts for p in sorted(positions)) if drafts else (),
        weighted_tokens_per_s=tokens * steps / seconds if tokens and steps and seconds else None,
        source="vLLM metrics, since the server was started",
    )


def _intervals(sums: Mapping[str, float]) -> tuple[float | None, float | None]:
    """Seconds and count of the histogram of times between outputs: one for each step."""
    for name in _INTERVALS:
        if sums.get(f"{name}_count"):
            return sums.get(f"{name}_sum"), sums[f"{name}_count"]
    return None, None


def _number(content: Mapping[str, Any], key: str) -> float | None:
    value = content.get(key)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if numeric and value is not None else None


def _whole(drafted: float | None, drafts: float | None) -> int | None:
    """Drafts per step where every step drafted as many."""
    if not drafted or not drafts or drafted % drafts:
        return None
    return int(drafted // drafts)
