"""What a user names as a run: a trace, a saved run, or a name in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracebook.compare.baseline import Baseline, Noise, is_saved, load
from tracebook.errors import TracebookError

#: Where the store is looked for, below the working directory.
STORE = Path(".tracebook")


class UnusedOptions(TracebookError):
    """Options that describe a trace, where there is none."""

    exit_code = 2


def side(sources: Sequence[str | Path], options: Mapping[str, Any] | None = None) -> Baseline:
    """Runs of one side, pooled.

    Args:
        sources: Traces and saved runs. A saved file may hold several runs.
        options: As `tracebook.analyze` takes them; they hold for the traces.

    Raises:
        TracebookError: A source cannot be used, or all are saved and options are given.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    runs, noises = [], []
    traces = [source for source in sources if not is_saved(Path(source))]
    if given and not traces:
        raise UnusedOptions(
            f"{', '.join(str(source) for source in sources)}: this is a saved run, and "
            f"{', '.join(sorted(given))} cannot change it.",
            "Give the trace, or leave the option out.",
        )
    for source in sources:
        if source in traces:
            from tracebook.compare.record import record

            runs.append(record(source, **given))
        else:
            saved = load(source)
            runs += saved.runs
            noises += [saved.noise] if saved.noise else []
    return Baseline(tuple(runs), max(noises, key=_runs, default=None))


def both(
    old: str, new: Sequence[str], options: Mapping[str, Any] | None, store: Path = STORE
) -> tuple[Baseline, Baseline]:
    """The two sides of a comparison.

    Args:
        old: A trace, a saved run, or a name in the store.
        new: The same, one or several.
        options: Hold for every trace among them.
        store: Directory of the store.

    Raises:
        TracebookError: As `side`; also where a name is neither a file nor in the store.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    traces = {name for name in (old, *new) if Path(name).exists() and not is_saved(Path(name))}
    if given and not traces:
        side([old, *new], given)  # tells that no trace is there
    found = []
    for names in ([old], list(new)):
        files = [name for name in names if Path(name).exists()]
        runs = side(files, given if traces & set(files) else None) if files else Baseline(())
        kept = [_from_store(name, store) for name in names if name not in files]
        noises = [one.noise for one in (runs, *kept) if one.noise]
        pooled = tuple(run for one in (runs, *kept) for run in one.runs)
        found.append(Baseline(pooled, max(noises, key=_runs, default=None)))
    return found[0], found[1]


def _from_store(name: str, store: Path) -> Baseline:
    from tracebook.compare.store import Store

    return Store(store).get(name)


def _runs(noise: Noise) -> int:
    return noise.runs
