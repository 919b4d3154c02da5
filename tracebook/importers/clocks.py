"""The clock of the processors, where GPU metrics were sampled (nsys --gpu-metrics-devices).

Two tables tell: TARGET_INFO_GPU_METRICS names the metrics, GPU_METRICS has the samples.
The lowest byte of `typeId` is the number of the GPU (nsys documentation, "Common SQLite
Examples"). Exports without them tell nothing, which is no error.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from statistics import median

from tracebook.errors import TraceError
from tracebook.importers.sqlite_open import connect, read_only_uri
from tracebook.printable import printable

_MAGIC = b"SQLite format 3\x00"
_CLOCK = re.compile(r"\b(gpc|sm|gr|graphics)\b.*\bclock\b.*\bfreq", re.IGNORECASE)
_LONGEST_NAME = 200
METRICS, SAMPLES = "TARGET_INFO_GPU_METRICS", "GPU_METRICS"
_NEEDED = {
    METRICS: {"typeId", "metricId", "metricName"},
    SAMPLES: {"timestamp", "typeId", "metricId", "value"},
}
_MOST_SAMPLES = 1_000_000


def processor_clock(
    path: Path, *, device: int | None, from_ns: int, to_ns: int
) -> tuple[str, float] | None:
    """Median of the sampled processor clock, and what the export calls it.

    Args:
        path: The export; anything but an SQLite file has no clock to read here.
        device: The GPU; None where the export has one.
        from_ns: Begin of the stretch of interest, in ns since the capture began.
        to_ns: Its end.

    Returns:
        Name and value in the unit of the name, None where there are no samples.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return None
        with closing(connect(read_only_uri(path, path))) as connection:
            return _read(connection, device, from_ns, to_ns)
    except (OSError, TraceError, sqlite3.Error, UnicodeError):
        return None  # the trace itself has been read; its clock is an extra


def is_clock(metric: str) -> bool:
    """Whether a metric of this name is the clock of the processors."""
    return len(metric) <= _LONGEST_NAME and bool(_CLOCK.search(metric))


def _read(
    connection: sqlite3.Connection, device: int | None, from_ns: int, to_ns: int
) -> tuple[str, float] | None:
    for table, needed in _NEEDED.items():
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if not needed <= columns:
            return None
    named = connection.execute("SELECT typeId, metricId, metricName FROM TARGET_INFO_GPU_METRICS")
    metrics = [row for row in named.fetchmany(10_000) if is_clock(str(row[2]))]
    gpus = {int(row[0]) & 0xFF for row in metrics}
    if len(gpus) > 1:
        metrics = [row for row in metrics if int(row[0]) & 0xFF == device]
    for type_id, metric_id, name in metrics:
        found = connection.execute(
            "SELECT value FROM GPU_METRICS WHERE typeId = ? AND metricId = ? "
            "AND timestamp BETWEEN ? AND ? AND typeof(value) IN ('integer', 'real') LIMIT ?",
            (type_id, metric_id, from_ns, to_ns, _MOST_SAMPLES),
        ).fetchall()
        values = [float(value) for (value,) in found if value > 0]
        if values:
            return printable(str(name)), median(values)
    return None
