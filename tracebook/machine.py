"""The machine's roofline: how fast its memory can be read, and who says so.

In: facts about the capture and flags. Out: `Machine`.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from tracebook.errors import RuleError, RunDescriptionError
from tracebook.notices import Notice
from tracebook.trace import Gpu, TraceInfo

_KEYS = {
    "title",
    "aliases",
    "gpus",
    "sm_count",
    "bandwidth_gbps",
    "source",
    "ceiling_gbps",
    "ceiling_source",
}

#: Two figures for one machine that are further apart than this are worth a line.
_DIFFERENCE = 0.1


@dataclass(frozen=True)
class Machine:
    """What the roofline is made of.

    Attributes:
        name: Machine or GPU, None where nothing names it.
        bandwidth_gbps: Published peak in 10^9 bytes per second, None where unknown.
        ceiling_gbps: Highest read rate that was measured, None where unknown.
        source: Where the figures come from, in words.
        notices: Warnings.
    """

    name: str | None
    bandwidth_gbps: float | None
    ceiling_gbps: float | None
    source: str
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True)
class MachineEntry:
    """One entry of `data/machines.toml`."""

    key: str
    title: str
    aliases: tuple[str, ...]
    gpus: tuple[str, ...]
    sm_count: int | None
    bandwidth_gbps: float
    source: str
    ceiling_gbps: float | None
    ceiling_source: str | None


def resolve_machine(
    info: TraceInfo,
    device: int | None,
    *,
    name: str | None = None,
    bandwidth_gbps: float | None = None,
    ceiling_gbps: float | None = None,
) -> Machine:
    """Find the peak bandwidth of the machine a capture was made on.

    A figure that was given wins, then the machine table (by `name`, else by the name of
    the GPU), then what the export itself claims.

    Args:
        info: Facts about the capture.
        device: The CUDA device whose kernels are examined; None where only one is there.
        name: Key, alias or GPU name of an entry of the machine table.
        bandwidth_gbps: Published peak, 10^9 bytes per second.
        ceiling_gbps: Measured read rate, 10^9 bytes per second.

    Returns:
        The machine; `bandwidth_gbps` is None, with a notice, where nothing tells it.

    Raises:
        RunDescriptionError: `name` is in no table, or a rate is not a positive number.
    """
    for flag, value in (("--bandwidth", bandwidth_gbps), ("--ceiling-gbps", ceiling_gbps)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise RunDescriptionError(f"{flag} must be a positive number of GB/s, not {value:g}.")
    gpu = gpu_of(info, device)
    by_gpu = _entry_of_gpu(gpu) if gpu else None
    entry = _entry_named(name) if name else by_gpu
    notices = [*_name_notices(entry, by_gpu, gpu)]

    peak, source = _peak(entry, gpu, bandwidth_gbps)
    if peak is None:
        notices.append(_unknown(info, device, gpu))
    elif bandwidth_gbps is None and entry is None:
        notices.append(
            Notice(
                "bandwidth_from_export",
                f"The peak of {peak:g} GB/s is the export's own figure for {_shown(gpu)}; "
                "it can be wrong (it is twice the real peak on GB10).",
                "Check it against the data sheet, or give --bandwidth GBPS.",
            )
        )
    ceiling, ceiling_words = ceiling_gbps, "ceiling given by the user"
    if ceiling is None and entry is not None and bandwidth_gbps is None:
        ceiling, ceiling_words = entry.ceiling_gbps, f"ceiling: {entry.ceiling_source}"
    if ceiling is not None:
        source = f"{source}; {ceiling_words}"
    notices += _rate_notices(peak, ceiling, bandwidth_gbps, entry)
    machine_name = entry.title if entry else (gpu.name if gpu else None)
    return Machine(machine_name, peak, ceiling, source, tuple(notices))


def gpu_of(info: TraceInfo, device: int | None) -> Gpu | None:
    """The GPU with this device number; without a match only where all GPUs are alike."""
    for gpu in info.gpus:
        if device is not None and gpu.device == device:
            return gpu
    if device is not None and any(gpu.device is not None for gpu in info.gpus):
        return None
    kinds = {gpu.name for gpu in info.gpus}
    return info.gpus[0] if len(kinds) == 1 else None


def _peak(
    entry: MachineEntry | None, gpu: Gpu | None, given: float | None
) -> tuple[float | None, str]:
    if given is not None:
        return given, "bandwidth given by the user"
    if entry is not None:
        return entry.bandwidth_gbps, entry.source
    if gpu is not None and gpu.bandwidth_gbps is not None:
        return gpu.bandwidth_gbps, "the export's own figure (TARGET_INFO_GPU), not checked"
    return None, "unknown"


def _unknown(info: TraceInfo, device: int | None, gpu: Gpu | None) -> Notice:
    if gpu is not None:
        why = f"{_shown(gpu)} is not in the machine table and the export gives no bandwidth."
    elif info.gpus:
        of_which = "" if device is None else f" with number {device}"
        why = f"The export lists no single GPU{of_which}, so the peak bandwidth is unknown."
    else:
        why = "The export does not say which GPU it is, so the peak bandwidth is unknown."
    return Notice("bandwidth_unknown", why, "Add --bandwidth GBPS or --machine NAME.")


def _name_notices(
    entry: MachineEntry | None, by_gpu: MachineEntry | None, gpu: Gpu | None
) -> list[Notice]:
    if entry is None or gpu is None or entry == by_gpu:
        return []
    if by_gpu is None and not entry.gpus:
        return []  # an entry that no GPU name leads to, such as the Orin modules
    return [
        Notice(
            "machine_differs",
            f"The machine is given as {entry.title}, but the export says {_shown(gpu)}.",
            "Check --machine.",
        )
    ]


def _rate_notices(
    peak: float | None, ceiling: float | None, given: float | None, entry: MachineEntry | None
) -> list[Notice]:
    notices = []
    if given is not None and entry is not None:
        known = entry.bandwidth_gbps
        if abs(given - known) > _DIFFERENCE * known:
            notices.append(
                Notice(
                    "bandwidth_differs",
                    f"The given peak of {given:g} GB/s is not the {known:g} GB/s of {entry.title}.",
                    "Check --bandwidth.",
                )
            )
    if peak is not None and ceiling is not None and ceiling > peak:
        notices.append(
            Notice(
                "ceiling_above_peak",
                f"The measured ceiling of {ceiling:g} GB/s is above the peak of {peak:g} GB/s.",
                "Check --ceiling-gbps and --bandwidth.",
            )
        )
    return notices


def _shown(gpu: Gpu | None) -> str:
    return gpu.name if gpu else "this GPU"


def _entry_of_gpu(gpu: Gpu) -> MachineEntry | None:
    plain = _plain(gpu.name)
    found = [e for e in machine_table().values() if plain in map(_plain, e.gpus)]
    if len(found) > 1:
        found = [e for e in found if e.sm_count == gpu.sm_count]
    return found[0] if len(found) == 1 else None


def _entry_named(name: str) -> MachineEntry:
    table = machine_table()
    wanted = name.strip().lower()
    names: dict[str, MachineEntry] = {}
    for entry in table.values():
        for known in (entry.key, *entry.aliases, _plain(entry.title), *map(_plain, entry.gpus)):
            names.setdefault(known.lower(), entry)
    found = names.get(wanted) or names.get(_plain(name))
    if found is None:
        close = difflib.get_close_matches(wanted, names, n=1)
        meant = f"Did you mean {names[close[0]].key}? " if close else ""
        raise RunDescriptionError(
            f"No machine is called {name!r}.",
            f"{meant}Known: {', '.join(table)}. Or give --bandwidth GBPS.",
        )
    return found


def _plain(name: str) -> str:
    """A GPU name without the maker's words, in small letters."""
    words = name.lower().replace("(r)", "").split()
    return " ".join(word for word in words if word not in ("nvidia", "geforce"))


@cache
def machine_table() -> Mapping[str, MachineEntry]:
    """Read and check `data/machines.toml`.

    Raises:
        RuleError: An entry has an unknown key, lacks one, or holds no positive rate.
    """
    text = resources.files("tracebook.data").joinpath("machines.toml").read_text(encoding="utf-8")
    return {key: parse_entry(key, raw) for key, raw in tomllib.loads(text).items()}


def parse_entry(key: str, raw: Mapping[str, Any]) -> MachineEntry:
    """Check one entry of the machine table.

    Raises:
        RuleError: See `machine_table`.
    """
    where = f"machines.toml: [{key}]"
    for unknown in raw.keys() - _KEYS:
        close = difflib.get_close_matches(unknown, _KEYS, n=1)
        raise RuleError(f"{where} has the unknown key {unknown}.", close[0] if close else None)
    missing = {"title", "gpus", "bandwidth_gbps", "source"} - raw.keys()
    if missing:
        raise RuleError(f"{where} lacks {', '.join(sorted(missing))}.")
    if ("ceiling_gbps" in raw) != ("ceiling_source" in raw):
        raise RuleError(f"{where}: ceiling_gbps and ceiling_source stand together or not at all.")
    for rate in ("bandwidth_gbps", "ceiling_gbps"):
        if rate in raw and not (isinstance(raw[rate], int | float) and raw[rate] > 0):
            raise RuleError(f"{where}: {rate} must be a positive number.")
    return MachineEntry(
        key=key,
        title=raw["title"],
        aliases=tuple(raw.get("aliases", ())),
        gpus=tuple(raw["gpus"]),
        sm_count=raw.get("sm_count"),
        bandwidth_gbps=float(raw["bandwidth_gbps"]),
        source=raw["source"],
        ceiling_gbps=float(raw["ceiling_gbps"]) if "ceiling_gbps" in raw else None,
        ceiling_source=raw.get("ceiling_source"),
    )
