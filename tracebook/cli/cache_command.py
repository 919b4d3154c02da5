"""`tracebook cache`: what the cache directory holds, and emptying it."""

from __future__ import annotations

import click


@click.group("cache", epilog="Example: tracebook cache info")
def cache_command() -> None:
    """Exports of reports and indexes of traces that are kept between runs.

    They lie in XDG_CACHE_HOME (or ~/.cache) and only you can read them. What was not used
    for longest goes when they grow beyond TRACEBOOK_CACHE_GB (20).
    """


@cache_command.command("info")
def info_command() -> None:
    """Tell where the cache is, its limit, and what is in it."""
    from tracebook.cache import cache_dir, entries, limit_bytes
    from tracebook.units import size_text

    listed = entries()
    total = sum(entry.size_bytes for entry in listed)
    click.echo(f"folder   {cache_dir()}")
    click.echo(f"holds    {size_text(total)} of {size_text(limit_bytes())}")
    for part in sorted({entry.path.parent.name for entry in listed}):
        sizes = [entry.size_bytes for entry in listed if entry.path.parent.name == part]
        click.echo(f"{part:<8} {len(sizes)}, {size_text(sum(sizes))}")


@cache_command.command("clear")
def clear_command() -> None:
    """Delete everything in it. Nothing is lost but the time to make it again."""
    from tracebook.cache import clear
    from tracebook.units import size_text

    count, freed = clear()
    click.echo(f"Deleted {count} {'entry' if count == 1 else 'entries'}, {size_text(freed)}.")
