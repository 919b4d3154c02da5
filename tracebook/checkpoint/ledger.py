"""The ledger: every byte of a checkpoint in exactly one component.

In: a `Checkpoint`. Out: one row per module with component, layer, op, format, bytes.
Work is done once per distinct name pattern and per distinct set of siblings; the
rows themselves are only joined. Conservation is checked each time a ledger is built.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from tracebook.checkpoint.formats import BARE, UNKNOWN, decide, split_names
from tracebook.checkpoint.header import Checkpoint
from tracebook.checkpoint.layouts import Sibling
from tracebook.checkpoint.roles import assign_roles, component_of, text_config
from tracebook.errors import CheckpointError
from tracebook.notices import Notice

#: One row per module (a matrix with its scales and bias, or a tensor that stands alone).
#: `part` is target, mtp, drafter, draft_head, vision, audio, adapter or unassigned; `block`
#: the kind within the part; `component` the name for printing. `layer` counts within the
#: part. `matrix` is the module relative to its layer or model. `weight_bytes` leaves out
#: scales. `params` are logical weights, null where the headers cannot tell. `read` says when
#: a decode step reads it: `step`, `drafting`, `rows` (gathered), `never`, `unknown`.
MODULE_SCHEMA: dict[str, pl.DataType] = {
    "part": pl.String(),
    "component": pl.String(),
    "block": pl.String(),
    "layer": pl.Int32(),
    "layer_kind": pl.String(),
    "op": pl.String(),
    "module": pl.String(),
    "matrix": pl.String(),
    "format": pl.String(),
    "bytes": pl.Int64(),
    "params": pl.Int64(),
    "rows": pl.Int64(),
    "cols": pl.Int64(),
    "tensors": pl.Int64(),
    "read": pl.String(),
}

_NUMBER = r"(^|\.)\d+"


@dataclass(frozen=True)
class Ledger:
    """Every byte of a checkpoint, by module.

    Attributes:
        checkpoint: Where it comes from.
        family: Family file that names the modules, `unknown` where none fits.
        modules: MODULE_SCHEMA, in the order of the files.
        notices: What could not be told.
    """

    checkpoint: Checkpoint
    family: str
    modules: pl.DataFrame
    notices: tuple[Notice, ...] = field(default_factory=tuple)

    @property
    def payload_bytes(self) -> int:
        """Bytes of tensor data; equals the sum over modules."""
        return self.checkpoint.payload_bytes

    def bytes_of(self, *components: str) -> int:
        """Return the bytes of components together."""
        return int(self.modules.filter(pl.col("component").is_in(components))["bytes"].sum())

    @property
    def is_target(self) -> bool:
        """Whether a plain decode step can be laid out: known layers and an output layer."""
        read = self.modules.filter((pl.col("part") == "target") & (pl.col("read") == "step"))
        layers = read.filter(pl.col("op").is_not_null() & pl.col("layer").is_not_null())
        heads = read.filter(pl.col("block").is_in(["output_layer", "embedding"]))
        return not (layers.is_empty() or heads.is_empty())

    @property
    def read_per_step(self) -> int:
        """M: bytes that a plain decode step of one token must read.

        All target layers, the final norm and the output layer (the embedding table
        where it is tied); for experts only those that one token is routed to are left
        to the plan, so this counts all of them.
        """
        return int(self.modules.filter(pl.col("read") == "step")["bytes"].sum())


def build_ledger(checkpoint: Checkpoint) -> Ledger:
    """Assign every tensor of a checkpoint.

    Args:
        checkpoint: What `read_checkpoint` returned.

    Returns:
        The ledger; its bytes sum to the payload.

    Raises:
        CheckpointError: The bytes do not add up (a fault of the program).
    """
    tensors = _with_modules(checkpoint.tensors)
    modules = _grouped(tensors)
    modules = modules.join(_formats(modules, checkpoint), on="signature", how="left")
    patterns = frozenset(modules["pattern"].unique())
    family, roles = assign_roles(patterns)
    table = [
        (p, r.part, component_of(r), r.block, r.op, r.in_layer, r.matrix or p)
        for p, r in roles.items()
    ]
    names = ["pattern", "part", "component", "block", "op", "in_layer", "matrix"]
    role_frame = pl.DataFrame(
        table,
        orient="row",
        schema={n: pl.Boolean if n == "in_layer" else pl.String for n in names},
    )
    modules = modules.join(role_frame, on="pattern", how="left", maintain_order="left")
    modules = _with_layers(modules)
    modules, tied = _with_reads(modules, checkpoint)
    modules = modules.select(pl.col(n).cast(t) for n, t in MODULE_SCHEMA.items())
    total = int(modules["bytes"].sum())
    if total != checkpoint.payload_bytes:
        raise CheckpointError(
            f"{checkpoint.name}: the components sum to {total:,} bytes, "
            f"the files hold {checkpoint.payload_bytes:,}. This is a fault of tracebook.",
        )
    notices = (*checkpoint.warnings, *tied, *_unknown_notices(modules))
    return Ledger(checkpoint, family, modules, notices)


def _with_modules(tensors: pl.DataFrame) -> pl.DataFrame:
    """Add name pattern, module and suffix to each tensor."""
    tensors = tensors.with_columns(
        name_pattern=pl.col("name").str.replace_all(_NUMBER, "${1}#"),
    )
    split = split_names(tensors["name_pattern"].unique())
    table = pl.DataFrame(
        [(name, module, suffix) for name, (module, suffix) in split.items()],
        orient="row",
        schema=dict.fromkeys(("name_pattern", "pattern", "suffix"), pl.String),
    )
    tensors = tensors.join(table, on="name_pattern", how="left", maintain_order="left")
    return tensors.with_columns(module=pl.col("name").str.strip_suffix(pl.col("suffix")))


def _grouped(tensors: pl.DataFrame) -> pl.DataFrame:
    """One row per module, with its siblings written as one string."""
    sibling = pl.concat_str(
        pl.col("suffix"),
        pl.lit(":"),
        pl.col("dtype"),
        pl.lit(":"),
        pl.col("shape").cast(pl.List(pl.String)).list.join(","),
    )
    return (
        tensors.with_columns(sibling=sibling)
        .group_by("module", maintain_order=True)
        .agg(
            pl.col("pattern").first(),
            pl.col("sibling").sort().str.join("|").alias("signature"),
            pl.col("bytes").sum(),
            pl.len().alias("tensors"),
        )
    )


def _formats(modules: pl.DataFrame, checkpoint: Checkpoint) -> pl.DataFrame:
    """Decide the format of each distinct set of siblings."""
    rows = []
    for signature in modules["signature"].unique():
        stored = decide(_siblings(signature), checkpoint.config)
        rows.append((signature, stored.format, stored.rows, stored.cols, stored.params))
    return pl.DataFrame(
        rows,
        orient="row",
        schema={
            "signature": pl.String,
            "format": pl.String,
            "rows": pl.Int64,
            "cols": pl.Int64,
            "params": pl.Int64,
        },
    )


def _siblings(signature: str) -> tuple[Sibling, ...]:
    result = []
    for part in signature.split("|"):
        suffix, dtype, shape = part.rsplit(":", 2)
        sizes = tuple(int(size) for size in shape.split(",")) if shape else ()
        result.append(Sibling(suffix or BARE, dtype, sizes))
    return tuple(result)


def _with_layers(modules: pl.DataFrame) -> pl.DataFrame:
    """Add the layer index, and per layer whether its token mixing is attention or recurrent."""
    number = pl.col("module").str.extract(r"(?:^|\.)(\d+)(?:\.|$)", 1).cast(pl.Int32, strict=False)
    # A layer without a number (EAGLE's `midlayer`) is the only one of its model.
    modules = modules.with_columns(layer=pl.when(pl.col("in_layer")).then(number.fill_null(0)))
    modules = _with_mtp_layers(modules)
    mixing = pl.col("block").replace_strict(
        {"attention": "attention", "linear_attention": "recurrent", "mamba": "recurrent"},
        default=None,
    )
    kinds = (
        modules.filter(pl.col("op").is_not_null() & pl.col("layer").is_not_null())
        .with_columns(layer_kind=mixing)
        .group_by("part", "layer")
        .agg(pl.col("layer_kind").drop_nulls().first())
    )
    return modules.join(
        kinds, on=["part", "layer"], how="left", maintain_order="left", nulls_equal=False
    )


def _with_mtp_layers(modules: pl.DataFrame) -> pl.DataFrame:
    """Move layers behind the last that hold an MTP projection (`eh_proj`) to the MTP part."""
    is_target = pl.col("part") == "target"
    found = modules.filter(is_target & (pl.col("block") == "mtp"))["layer"].unique()
    if found.is_empty():
        return modules
    moved = is_target & pl.col("layer").is_in(found.implode())
    return modules.with_columns(
        part=pl.when(moved).then(pl.lit("mtp")).otherwise(pl.col("part")),
        component=pl.when(moved).then(pl.lit("mtp")).otherwise(pl.col("component")),
        layer=pl.when(moved).then(pl.col("layer") - found.min()).otherwise(pl.col("layer")),
    )


def _with_reads(
    modules: pl.DataFrame, checkpoint: Checkpoint
) -> tuple[pl.DataFrame, tuple[Notice, ...]]:
    """Say when a step reads each module; a tied embedding is read as the output layer."""
    part, block = pl.col("part"), pl.col("block")
    read = (
        pl.when(part == "unassigned")
        .then(pl.lit("unknown"))
        .when(block.is_in(["embedding", "gather_table"]))
        .then(pl.lit("rows"))
        .when(part.is_in(["vision", "audio"]) | (block == "never_read"))
        .then(pl.lit("never"))
        .when(part.is_in(["target", "adapter"]))
        .then(pl.lit("step"))
        .otherwise(pl.lit("drafting"))
    )
    modules = modules.with_columns(read=read)
    target = modules.filter(part == "target")
    has_head = not target.filter(block == "output_layer").is_empty()
    has_embedding = not target.filter(block == "embedding").is_empty()
    says_tied = _tie_flag(checkpoint)
    if has_head or not has_embedding:
        if has_head and says_tied:
            return modules, (
                Notice(
                    "tied_but_both",
                    "The config says that output layer and embedding are tied, yet both tables "
                    "are in the files; the output layer counts as read.",
                ),
            )
        return modules, ()
    if says_tied is False:
        return modules, (
            Notice(
                "no_output_layer",
                "The config says that the output layer is not tied, but it is not in the files; "
                "its bytes are missing from the count.",
                "Give all files of the checkpoint.",
            ),
        )
    tied = (part == "target") & (block == "embedding")
    return modules.with_columns(
        read=pl.when(tied).then(pl.lit("step")).otherwise(pl.col("read"))
    ), ()


def _tie_flag(checkpoint: Checkpoint) -> bool | None:
    """What the config says about tied embeddings, None where it says nothing."""
    for config in (text_config(checkpoint.config), checkpoint.config or {}):
        value = config.get("tie_word_embeddings")
        if isinstance(value, bool):
            return value
    return None


def _unknown_notices(modules: pl.DataFrame) -> tuple[Notice, ...]:
    notices = []
    unassigned = modules.filter(pl.col("part") == "unassigned")
    if not unassigned.is_empty():
        notices.append(
            Notice(
                "unassigned",
                f"{unassigned.height} modules with {int(unassigned['bytes'].sum()):,} bytes are "
                f"unassigned: {_some(unassigned['module'])}.",
                "They count in the total and in no phase; name them in a file of data/families.",
            )
        )
    unknown = modules.filter(pl.col("format") == UNKNOWN)
    if not unknown.is_empty():
        notices.append(
            Notice(
                "unknown_format",
                f"{unknown.height} modules are stored in a format that no rule knows: "
                f"{_some(unknown['module'])}. Bytes are counted by offsets, weights are not.",
                "Add the set of tensors to data/formats.toml.",
            )
        )
    return tuple(notices)


def _some(names: pl.Series, most: int = 3) -> str:
    shown = ", ".join(names.head(most))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
