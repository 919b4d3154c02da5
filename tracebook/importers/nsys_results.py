"""Results that nsys itself worked out: CSV files of `nsys stats`, folders of `nsys recipe`.

In: a file or a folder. Out: frames with our column names, types and units, as
`data/nsys_results.toml` lists them. What is not listed is named and left.
"""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl

from tracebook.errors import MissingTable, NotATrace, TraceError
from tracebook.importers.names import printable
from tracebook.notices import Notice

#: ours -> (theirs, type)
Columns = Mapping[str, tuple[str, str]]

_TYPES = {"int": pl.Int64(), "float": pl.Float64(), "text": pl.String()}
_NS_OF_UNIT = {"ns": 1.0, "us": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_STATS_REPORT = "cuda_gpu_kern_sum"
#: The recipe writes one file for each quantity, with a column for each report.
_PACE = ("start", "end", "duration", "delta", "duration_accum", "delta_accum")


@dataclass(frozen=True)
class RecipeResult:
    """What a recipe found.

    Attributes:
        recipe: Its name, None where the folder does not tell.
        folder: Where it lies.
        tables: Typed frames by the name of their file.
        left: Parquet and CSV files that were not read.
        notices: What was odd.
    """

    recipe: str | None
    folder: Path
    tables: Mapping[str, pl.DataFrame]
    left: tuple[Path, ...]
    notices: tuple[Notice, ...] = ()


def is_recipe_folder(path: Path) -> bool:
    """Whether a folder holds what `nsys recipe` leaves: one .nsys-analysis file."""
    return path.is_dir() and any(path.glob("*.nsys-analysis"))


def read_recipe(folder: Path) -> RecipeResult:
    """Read a finished recipe folder.

    Raises:
        NotATrace: It is no such folder.
        TraceError: A file in it cannot be read, or lacks a column that it must have.
    """
    recipe = _recipe_name(folder)
    files = sorted(f for f in folder.iterdir() if f.suffix in (".parquet", ".csv"))
    known = _listed()["recipes"].get(recipe or "", {})
    tables, read, notices = {}, set(), []
    for name, columns in known.items():
        file = folder / f"{name}.parquet"
        if file.is_file():
            tables[name], unknown = _typed(_parquet(file), columns, file)
            read |= {file, file.with_suffix(".csv")}  # the CSV holds the same rows
            notices += _unknown_columns(file, unknown)
    if recipe == "cuda_gpu_kern_pace":
        pace_files = [f for f in files if f.suffix == ".parquet" and f.stem.startswith("pace_")]
        pace = _pace(folder, tables.get("files"))
        if pace is not None:
            tables["pace"] = pace
            read |= {f for f in pace_files if f.stem.removeprefix("pace_") in _PACE}
    return RecipeResult(
        recipe, folder, tables, tuple(f for f in files if f not in read), tuple(notices)
    )


def read_stats_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file of `nsys stats -r cuda_gpu_kern_sum`: one row per kernel name.

    Raises:
        TraceError: It cannot be read or is something else.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(
            f"{path} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error
    return parse_stats_csv(text, path)


def parse_stats_csv(text: str, origin: Path) -> pl.DataFrame:
    """Read the text of such a file; lines before its header are passed over.

    Returns:
        name, time_pct, total_time_ns, instances, avg_ns, median_ns, min_ns, max_ns,
        stddev_ns, as far as the file has them; times as integers where it gives ns.

    Raises:
        NotATrace: No header of this report is in it, or it tells no unit of time.
    """
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("Time (%)")), None)
    if begin is None:
        raise NotATrace(
            f"{origin} is no CSV file of nsys stats -r {_STATS_REPORT}.",
            f"Make one: nsys stats -r {_STATS_REPORT} --format csv RUN.sqlite",
        )
    body = "\n".join(line for line in lines[begin:] if line.strip())
    frame = pl.read_csv(io.StringIO(body), infer_schema=False)
    chosen = []
    for ours, (theirs, kind) in _columns_of(_listed()["stats"][_STATS_REPORT]).items():
        if kind != "time":
            if theirs in frame.columns:
                chosen.append(_as_type(pl.col(theirs), kind).alias(ours))
            continue
        found = next((c for c in frame.columns if re.fullmatch(rf"{theirs} \((\S+)\)", c)), None)
        if found is None:
            continue
        unit = found[len(theirs) + 2 : -1]
        if unit not in _NS_OF_UNIT:
            raise NotATrace(f"{origin}: {found} is in no unit of time that is known.")
        value = pl.col(found).cast(pl.Float64, strict=False) * _NS_OF_UNIT[unit]
        whole = unit == "ns" and ours in ("total_time_ns", "min_ns", "max_ns")
        chosen.append((_as_type(pl.col(found), "int") if whole else value).alias(ours))
    result = frame.select(chosen)
    if not {"name", "total_time_ns", "instances"} <= set(result.columns):
        raise NotATrace(f"{origin} lacks the name, the total time or the instances of kernels.")
    return result.with_columns(printable(pl.col("name")))


def kernel_sums(path: Path) -> pl.DataFrame:
    """Kernel sums that nsys worked out: a stats CSV file, or a cuda_gpu_kern_sum folder.

    Returns:
        name, instances, total_time_ns: one row per name.

    Raises:
        TraceError: It is neither.
    """
    if not path.is_dir():
        return read_stats_csv(path).select("name", "instances", "total_time_ns")
    result = read_recipe(path)
    if result.recipe != _STATS_REPORT or "all_stats" not in result.tables:
        raise MissingTable(
            f"{path} is the folder of another recipe ({result.recipe or 'unknown'}).",
            "Give one of cuda_gpu_kern_sum.",
        )
    return result.tables["all_stats"].select("name", "instances", "total_time_ns")


def _recipe_name(folder: Path) -> str | None:
    """The name in the .nsys-analysis file; a diff gives no name but the folders compared."""
    files = sorted(folder.glob("*.nsys-analysis")) if folder.is_dir() else []
    if len(files) != 1:
        raise NotATrace(
            f"{folder} is no folder of nsys recipe: it has {len(files)} .nsys-analysis files.",
            "Give the folder that nsys recipe named as generated.",
        )
    try:
        told = json.loads(files[0].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TraceError(f"{files[0]} cannot be read: {error}.", "Run the recipe again.") from error
    if not isinstance(told, dict):
        return None
    name = told.get("RecipeName")
    if isinstance(name, str):
        return name
    return "diff" if "DiffDirs" in told else None


def _pace(folder: Path, files: pl.DataFrame | None) -> pl.DataFrame | None:
    """The files of one quantity each as one frame: a row per report and iteration."""
    long = []
    for quantity in _PACE:
        file = folder / f"pace_{quantity}.parquet"
        if not file.is_file():
            return None
        wide = _parquet(file)
        ranks = [c for c in wide.columns if c.isdigit()]
        long.append(
            wide.select(ranks)
            .with_row_index("iteration")
            .unpivot(index="iteration", variable_name="rank", value_name=f"{quantity}_ns")
            .with_columns(
                pl.col("iteration", "rank").cast(pl.Int64),
                # A report with fewer iterations is filled up with nothing.
                pl.col(f"{quantity}_ns").cast(pl.Float64).fill_nan(None).cast(pl.Int64),
            )
        )
    joined = long[0]
    for other in long[1:]:
        joined = joined.join(other, on=["rank", "iteration"], how="left", maintain_order="left")
    joined = joined.drop_nulls("start_ns")
    if files is not None:
        named = files.with_row_index("rank").with_columns(pl.col("rank").cast(pl.Int64))
        joined = joined.join(named, on="rank", how="left", maintain_order="left")
    return joined.sort("rank", "iteration")


def _parquet(file: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(file, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise TraceError(
            f"{file} is damaged or cannot be read.", "Run the recipe again."
        ) from error


def _typed(frame: pl.DataFrame, columns: Columns, file: Path) -> tuple[pl.DataFrame, list[str]]:
    missing = [theirs for theirs, _ in columns.values() if theirs not in frame.columns]
    if missing:
        raise TraceError(
            f"{file} lacks {', '.join(missing)}: this nsys writes another form of it.",
            "Its columns are listed in tracebook/data/nsys_results.toml; please report this.",
        )
    typed = frame.select(_as_type(pl.col(t), kind).alias(o) for o, (t, kind) in columns.items())
    taken = {theirs for theirs, _ in columns.values()}
    return typed, [c for c in frame.columns if c not in taken and not c.startswith("__index")]


def _as_type(column: pl.Expr, kind: str) -> pl.Expr:
    if kind == "text":
        return printable(column.cast(pl.String))
    return column.cast(_TYPES[kind], strict=False)


def _unknown_columns(file: Path, unknown: list[str]) -> list[Notice]:
    if not unknown:
        return []
    return [Notice("columns_left", f"{file.name} has columns that are left: {', '.join(unknown)}.")]


@cache
def _listed() -> dict[str, Any]:
    text = resources.files("tracebook.data").joinpath("nsys_results.toml").read_text("utf-8")
    listed = tomllib.loads(text)
    listed["recipes"] = {
        recipe: {file: _columns_of(columns) for file, columns in files.items()}
        for recipe, files in listed["recipes"].items()
    }
    return listed


def _columns_of(section: Mapping[str, list[str]]) -> dict[str, tuple[str, str]]:
    return {ours: (theirs, kind) for ours, (theirs, kind) in section.items()}
