"""Time a whole report against SQLite's C floor and `nsys stats` on the same files.

    python benchmarks/measure.py 100000 1000000 5000000 10000000 > build/bench/results.json

Each program is run as a user runs it, a process of its own, several times in turns; the
least wall time counts (the machine may have other work), beside it the least CPU time, the
peak memory of the process and the peak of what is its own (`RssAnon`: without files that are
mapped, which the system takes back when it needs to). The floor steps through the columns
that a report reads, in C; `tight` is a report over its memory budget, from files.

Times must grow with the kernels, not faster: the exit status is 1 where a further kernel
costs more CPU time at the largest size than it should.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
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
#: The least that --max-memory takes: every kernel then lies in files.
TIGHT = "200MB"
ROUNDS = 3
#: A further kernel at the largest size may cost so much of what one cost before.
MOST_GROWTH = 1.3
KEYS = ("wall_s", "cpu_s", "peak_mb", "own_mb")


def measure(command, environment):
    """Wall seconds, CPU seconds, peak MB and peak MB of its own of a program."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=told, env=environment, cwd=ROOT
        )
        own_mb, ended = 0.0, 0
        while not ended:  # a look each 5 ms costs no time of the program on a core of its own
            own_mb = max(own_mb, own_memory_mb(process.pid))
            time.sleep(0.005)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            told.seek(0)
            raise SystemExit(f"{command[:5]} failed: {told.read().decode()[-300:]}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1.024e-3, own_mb


def own_memory_mb(pid):
    """Memory that is the process's own now, in MB; 0 where it cannot be told."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(found[1]) * 1.024e-3 if found else 0.0


def best(commands, environments):
    """Run all commands in turns; the least wall time of each, with its CPU time and memory."""
    runs = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            runs[name].append(measure(command, environments[name]))
    return {
        name: dict(
            zip(
                KEYS,
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


def growth(results):
    """CPU time of a further kernel between the two largest sizes, over that of those before."""
    # Below a million what is the same for any size outweighs the kernels.
    sizes = sorted((size for size in results if int(size) >= 1_000_000), key=int)[-3:]
    if len(sizes) < 3:
        return {}

    def per_kernel(name, a, b):
        more = results[b]["kernels"] - results[a]["kernels"]
        return (results[b][name]["cpu_s"] - results[a][name]["cpu_s"]) / more

    small, middle, large = sizes
    return {
        name: round(per_kernel(name, middle, large) / per_kernel(name, small, middle), 2)
        for name in ("report", "indexed", "tight")
    }


def main(sizes):
    PLACE.mkdir(parents=True, exist_ok=True)
    floor = build_floor()
    program = [sys.executable, "-m", "tracebook"]
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
        index = measure([*program, "index", str(trace)], cached)
        commands = {
            "floor": [floor, str(trace), QUERY],
            "report": [*program, "report", str(trace)],
            "indexed": [*program, "report", str(trace)],
            "tight": [*program, "report", str(trace), "--max-memory", TIGHT],
        }
        environments = {"floor": plain, "report": plain, "indexed": cached, "tight": plain}
        if Path(nsys).exists():
            stats = ["stats", "-r", "cuda_gpu_kern_sum", "--format", "csv"]
            commands["nsys"] = [nsys, *stats, str(trace)]
            environments["nsys"] = plain
        found = best(commands, environments)
        results[str(size)] = {
            "kernels": kernels,
            "file_mb": round(trace.stat().st_size / 1e6),
            "index": dict(zip(KEYS, (round(value, 3) for value in index), strict=True)),
            **found,
        }
        print(size, json.dumps(results[str(size)]), file=sys.stderr)
    grown = growth(results)
    about = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rounds": ROUNDS,
        "load": os.getloadavg()[1],
    }
    print(json.dumps({"about": about, "sizes": results, "growth": grown}, indent=1))
    return 1 if any(value > MOST_GROWTH for value in grown.values()) else 0


if __name__ == "__main__":
    default = [100_000, 1_000_000, 5_000_000, 10_000_000]
    sys.exit(main([int(word) for word in sys.argv[1:]] or default))
