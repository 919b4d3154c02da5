"""Learn from the matches of a step what each kernel name does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracebook.kernels.align import ODD_NAME_COST, Column, Habits, Match, expected_ns
from tracebook.kernels.runs import Runs

#: A kernel is not held to be faster or slower than its bytes say by more than this, ln.
MAX_BIAS = 0.35


def learn_habits(
    column: Column, runs: Runs, matches: Sequence[Match], bandwidth_gbps: float
) -> Habits:
    """Learn, per kernel symbol, its bias and which kinds of read it makes.

    A symbol with a few matches gets a damped median of ln(measured / expected). A kind
    that was matched at least twice expects the symbols that served a fifth of it.
    """
    symbols = int(column.symbol.max()) + 1
    kinds = int(runs.kind.max()) + 1
    run_of = {
        (int(f), int(e)): i for i, (f, e) in enumerate(zip(runs.first, runs.end, strict=True))
    }
    served = np.zeros((symbols, kinds))
    ratios: dict[int, list[float]] = {}
    for m in matches:
        run = run_of[(m.first, m.end)]
        symbol = int(column.symbol[m.first_kernel])
        served[symbol, runs.kind[run]] += 1
        if runs.mixer[run] or runs.collective[run]:
            continue
        taken = float(column.duration_ns[m.first_kernel : m.end_kernel].sum())
        size = float(runs.weight_bytes[run])
        expected = expected_ns(size, bandwidth_gbps, column.launch_ns)
        ratios.setdefault(symbol, []).append(float(np.log(taken / expected)))
    bias = np.zeros(symbols)
    for symbol, values in ratios.items():
        damped = float(np.median(values)) * len(values) / (len(values) + 2)
        bias[symbol] = float(np.clip(damped, -MAX_BIAS, MAX_BIAS))
    total = served.sum(axis=0)
    usual = served >= 0.2 * np.maximum(total, 1)
    odd = np.where((total >= 2)[None, :] & ~usual, ODD_NAME_COST, 0.0)
    seen = np.bincount(column.symbol, minlength=symbols)
    never = (served.sum(axis=1) == 0) & (seen >= 4)
    odd[never] = np.maximum(odd[never], ODD_NAME_COST)
    return Habits(bias, odd)
