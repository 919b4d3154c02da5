"""Time a whole report against SQLite's C floor and `nsys stats` on the same files.

    python benchmarks/measure.py 100000 1000000 5000000 > build/bench/results.json

Each program is run as a user runs it, a process of its own, several times in turns; the
least wall time counts (the machine may have other work), beside it the least CPU time, and
the peak memory of the process. The floor steps through the columns that a report reads, in C.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import date
from pathlib import Path

# Nothing heavy is imported: a child begins with the memory of its parent, and its peak would
# be the parent's.
ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "bench"
COLUMNS = (
    'rowid, start, "end", deviceId, globalPid, streamId, correlationId, demangledName, '
    "shortName, gridX, gridY, gridZ, blockX, blockY, blockZ, graphNodeId"
)
QUERY = f"SELECT {COLUMNS} FROM CUPTI_ACTIVITY_KIND_KERNEL"
ROUNDS = 3


def measure(command, environment):
    """Wall seconds, CPU seconds and peak MB of a program."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    told = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        raise SystemExit(f"{command[:3]} failed: {told.decode()[-300:]}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


def best(commands, environments):
    """Run all commands in turns; the least wall time of each, with its CPU time and memory."""
    runs = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            runs[name].append(measure(command, environments[name]))
    return {
        name: dict(
            zip(
                ("wall_s", "cpu_s", "peak_mb"),
                (round(min(values), 3) for values in zip(*measured, strict=True)),
                strict=True,
            )
        )
        for name, measured in runs.items()
    }


def build_floor():
    floor = PLACE / "floor"
    source = Path(__file__).parent / "floor.c"
    subprocess.run(["cc", "-O2", "-o", floor, source, "-ldl"], check=True)
    return str(floor)


def count(trace):
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]


def main(sizes):
    PLACE.mkdir(parents=True, exist_ok=True)
    floor = build_floor()
    program = str(Path(sys.executable).with_name("tracebook"))
    nsys = os.environ.get("TRACEBOOK_NSYS") or str(ROOT / ".nsys" / "nsys")
    results = {}
    for size in sizes:
        trace = PLACE / str(size) / "trace.sqlite"
        maker = Path(__file__).with_name("decode_trace.py")
        subprocess.run([sys.executable, maker, str(size), trace], check=True, stdout=sys.stderr)
        kernels = count(trace)
        plain = os.environ | {"XDG_CACHE_HOME": str(PLACE / "no-cache")}
        cached = os.environ | {"XDG_CACHE_HOME": str(PLACE / "cache")}
        shutil.rmtree(PLACE / "cache", ignore_errors=True)
        index = measure([program, "index", str(trace)], cached)
        commands = {
            "floor": [floor, str(trace), QUERY],
            "report": [program, "report", str(trace)],
            "indexed": [program, "report", str(trace)],
        }
        environments = {"floor": plain, "report": plain, "indexed": cached}
        if Path(nsys).exists():
            stats = ["stats", "-r", "cuda_gpu_kern_sum", "--format", "csv"]
            commands["nsys"] = [nsys, *stats, str(trace)]
            environments["nsys"] = plain
        found = best(commands, environments)
        results[str(size)] = {
            "kernels": kernels,
            "file_mb": round(trace.stat().st_size / 1e6),
            "index_s": round(index[0], 3),
            **found,
        }
        print(size, json.dumps(results[str(size)]), file=sys.stderr)
    about = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rounds": ROUNDS,
        "load": os.getloadavg()[1],
    }
    print(json.dumps({"about": about, "sizes": results}, indent=1))


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [100_000, 1_000_000, 5_000_000])
