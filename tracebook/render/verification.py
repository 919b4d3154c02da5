"""Text of a verification: one sentence where all agrees, else the rows that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebook.units import counted

if TYPE_CHECKING:
    from tracebook.verify import Verification

_MOST_ROWS = 20
_NAME_LETTERS = 60


def verification_text(found: Verification) -> str:
    """What agrees and what does not, for stderr."""
    kernels, duration_ns, their_kernels, their_ns = found.totals
    differing = found.differing
    if differing.is_empty():
        return (
            f"Verified: {counted(kernels, 'kernel')} and {duration_ns:,} ns in "
            f"{counted(found.sums.height, 'name')}, the same as {found.source}.\n"
        )
    lines = [
        f"Not the same as {found.source}: {differing.height} of {found.sums.height} names differ.",
        f"{'kernels':>12} {'theirs':>12} {'ns':>18} {'theirs':>18}  name",
        _row("all kernels", kernels, duration_ns, their_kernels, their_ns),
    ]
    lines += [_row(*row) for row in differing.head(_MOST_ROWS).iter_rows()]
    if differing.height > _MOST_ROWS:
        lines.append(f"... and {differing.height - _MOST_ROWS} more names")
    return "\n".join(lines) + "\n"


def _row(
    name: str, kernels: int | None, ns: int | None, their_kernels: int | None, their_ns: int | None
) -> str:
    texts = ["-" if v is None else f"{v:,}" for v in (kernels, their_kernels, ns, their_ns)]
    short = name if len(name) <= _NAME_LETTERS else name[: _NAME_LETTERS - 3] + "..."
    return f"{texts[0]:>12} {texts[1]:>12} {texts[2]:>18} {texts[3]:>18}  {short}"
