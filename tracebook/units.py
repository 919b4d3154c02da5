"""Units: the one place that turns integers of ns and bytes into figures for people.

1 byte/ns is 1 GB/s; a GB is 10^9 bytes, never 2^30. Figures are rounded to six
decimals where they are formed (a time in ms then still tells single nanoseconds),
so that a saved report says the same when it is read back.
"""

from __future__ import annotations

NS_PER_MS = 1_000_000
BYTES_PER_GB = 1_000_000_000
_DECIMALS = 6


def rounded(value: float) -> float:
    """Cut the digits that only rounding errors fill."""
    return round(float(value), _DECIMALS)


def ms(ns: float) -> float:
    """Nanoseconds as milliseconds."""
    return rounded(ns / NS_PER_MS)


def gbps(byte_count: int | None, duration_ms: float | None) -> float | None:
    """Bytes over milliseconds as GB/s; None where either is missing or zero."""
    if not byte_count or not duration_ms:
        return None
    return rounded(byte_count / (duration_ms * NS_PER_MS))


def percent(part: float | None, whole: float | None) -> float | None:
    """`part` in percent of `whole`; None where either is missing or `whole` is zero."""
    if part is None or not whole:
        return None
    return rounded(100.0 * part / whole)


def floor_ms(byte_count: int | None, bandwidth_gbps: float | None) -> float | None:
    """The shortest time in ms in which `bandwidth_gbps` moves the bytes."""
    if byte_count is None or not bandwidth_gbps:
        return None
    return rounded(byte_count / bandwidth_gbps / NS_PER_MS)


def gb_text(byte_count: int | None) -> str:
    """Bytes as GB in three significant places that suit a table; '-' for None."""
    if byte_count is None:
        return "-"
    gb = byte_count / BYTES_PER_GB
    return f"{gb:.2f}" if gb >= 1 or gb == 0 else f"{gb:.3f}"


def size_text(byte_count: int) -> str:
    """The size of a file with its unit."""
    for unit, size in (("GB", BYTES_PER_GB), ("MB", 10**6), ("kB", 10**3)):
        if byte_count >= size / 10:
            return f"{byte_count / size:.2f} {unit}"
    return counted(byte_count, "byte")


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it is not one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def number_text(value: float | None, decimals: int) -> str:
    """A figure with fixed decimals; '-' for None."""
    return "-" if value is None else f"{value:,.{decimals}f}"
