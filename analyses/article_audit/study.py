"""Each byte figure of the published analysis against a count of the tensor headers.

python -m analyses.article_audit.study
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from analyses.common import FIXTURES, article, cut, ledger, number, saved_report, table, write
from tracebook.config import load_run
from tracebook.predict import predict
from tracebook.speculation import expected_tokens, solve_alpha

GB, MB = 1e9, 1e6


@dataclass(frozen=True)
class Figure:
    """A published figure and what the headers give by the article's own rule.

    `digits` are the decimals that were published.
    `reason` explains a figure that does not follow, with the count that would give it.
    """

    name: str
    published: float
    counted: float
    unit: str
    digits: int = 2
    reason: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the count gives the published digits."""
        return round(self.counted, self.digits) == round(self.published, self.digits)


def target_layers(name: str = "target-nvfp4") -> pl.DataFrame:
    """Modules of the target's layers."""
    return ledger(name).modules.filter((pl.col("part") == "target") & pl.col("layer").is_not_null())


def block_share(block: str) -> float:
    """Share of a block in the bytes of the layers, in percent."""
    layers = target_layers()
    part = layers.filter(pl.col("block") == block)["bytes"].sum()
    return 100 * float(part) / float(layers["bytes"].sum())


def figures() -> list[Figure]:
    """The figures, in the order in which a reader meets them."""
    target, fp8, bf16 = ledger("target-nvfp4"), ledger("target-fp8"), ledger("target-bf16")
    layers, peak = target_layers(), article()["peak_gbps"]
    size, weights = float(layers["bytes"].sum()), float(layers["params"].sum())
    m, m_fp8, m_bf16 = (float(book.read_per_step) for book in (target, fp8, bf16))
    mtp = target.bytes_of("mtp") + target.bytes_of("output_layer")
    head = target.modules.filter(pl.col("block") == "output_layer")
    both = weights + float(head["params"].sum())
    plain_ms = article()["plain_step_ms"]
    drafter, small = ledger("drafter-bf16"), ledger("drafter-nvfp4")
    snapshot = _moved("plain-nvfp4", "recurrent_state", "read")
    return [
        Figure("64 layers", 17.83, size / GB, "GB"),
        Figure("output layer", 1.27, target.bytes_of("output_layer") / GB, "GB"),
        Figure("embedding table", 2.54, target.bytes_of("embedding") / GB, "GB"),
        Figure("vision encoder", 0.92, target.bytes_of("vision") / GB, "GB"),
        Figure("MTP head", 0.85, target.bytes_of("mtp") / GB, "GB"),
        Figure("read per token, M", 19.10, m / GB, "GB"),
        Figure("bound per token", 70.0, m / peak / MB, "ms", 1),
        Figure("ceiling", 14.3, peak * GB / m, "tokens/s", 1),
        Figure("achieved when plain", 217, m / plain_ms / MB, "GB/s", 0),
        Figure("share of the ceiling", 80, 100 * m / plain_ms / MB / peak, "%", 0),
        Figure("MLP of the layers", 59, block_share("mlp"), "%", 0),
        Figure("Gated DeltaNet of the layers", 31, block_share("linear_attention"), "%", 0),
        Figure("full attention of the layers", 9, block_share("attention"), "%", 0),
        Figure("packed 4-bit tensors", 168,
               target.modules.filter(pl.col("format") == "nvfp4").height, "", 0),
        Figure("layers at 4.5 bits", 14, weights * 4.5 / 8 / GB, "GB", 0),
        Figure("one MTP draft", 2.12, mtp / GB, "GB"),
        Figure("step with 3 MTP drafts", 25.5, (m + 3 * mtp) / GB, "GB", 1),
        Figure("that step at 217 GB/s", 117, (m + 3 * mtp) / 217 / MB, "ms", 0),
        Figure("drafter in BF16", 3.85, drafter.payload_bytes / GB, "GB"),
        Figure("drafter in NVFP4", 1.36, small.payload_bytes / GB, "GB"),
        Figure("draft head in FP8", 0.51, ledger("drafthead-fp8").bytes_of("draft_head") / GB,
               "GB"),
        Figure("state snapshot in BF16", 75.5, snapshot / MB, "MB", 1),
        Figure("eleven snapshots", 0.83, _moved("dflash2-k10", "recurrent_state", "write") / GB,
               "GB"),
        Figure("tokens at 10 drafts from the fit at 7", 5.45,
               expected_tokens(solve_alpha(4.78, 7), 10), ""),
        Figure("tokens/s of 5.32 tokens in 97.9 ms", 54.3, 5.32 / 97.9e-3, "tokens/s", 1),
        Figure("FP8, read per token", 27.9, m_fp8 / GB, "GB", 1,
               f"by the rule of M; with the vision encoder it is "
               f"{(m_fp8 + fp8.bytes_of('vision')) / GB:.2f}"),
        Figure("BF16, read per token (about)", 53, m_bf16 / GB, "GB", 0,
               f"by the rule of M; every tensor but the embedding is "
               f"{(bf16.payload_bytes - bf16.bytes_of('embedding')) / GB:.2f}"),
        Figure("bits per weight of the layers", 5.6, 8 * size / weights, "bits", 1,
               f"{8 * size / both:.2f} if the output layer's weights are in the divisor only"),
    ]  # fmt: skip


def _moved(run: str, name: str, direction: str) -> int:
    """Traffic of the target's layers in a saved report."""
    (row,) = (r for r in saved_report(run).phase_rows if r.phase == "target_layers")
    return sum(m.bytes for m in row.traffic if (m.name, m.direction) == (name, direction))


def story_cache_gb() -> float:
    """KV cache of the story of 34,000 tokens, which M leaves out."""
    run = replace(load_run(FIXTURES / "plain-nvfp4" / "run.toml"), context_tokens=34_000)
    layers = predict(run).phases[0]
    return (
        sum(m.bytes for m in layers.traffic if (m.name, m.direction) == ("kv_cache", "read")) / GB
    )


def compute() -> tuple[dict[str, Any], str]:
    """The result as data and as Markdown."""
    found = figures()
    result = {
        "figures": [
            {
                "name": f.name, "published": f.published, "counted": f.counted, "unit": f.unit,
                "agrees": f.agrees, "reason": f.reason,
            }
            for f in found
        ],
        "story_cache_gb": story_cache_gb(),
    }  # fmt: skip
    rows = [
        [f.name, f"{f.published:g} {f.unit}".strip(), number(f.counted, f.digits + 2),
         "yes" if f.agrees else "**no**", f.reason]
        for f in found
    ]  # fmt: skip
    odd = [f for f in found if not f.agrees]
    text = f"""# Result

{table(["figure", "published", "counted", "agrees", "note"], rows)}

{len(found) - len(odd)} of {len(found)} figures follow from the headers to the digits given.
{len(odd)} do not: {"; ".join(f.name for f in odd)}.

M leaves the KV cache out: the story of 34,000 tokens reads another
{number(result["story_cache_gb"], 2)} GB a step in BF16.
"""
    return cut(result), text


if __name__ == "__main__":
    write(Path(__file__).parent, *compute())
