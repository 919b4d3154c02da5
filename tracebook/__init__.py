"""Where one LLM decode step spends its time, in bytes and GB/s per phase.

Two inputs that every decode run already has, an Nsight Systems export and the
tensor headers of a checkpoint, are joined into one account: time per phase,
bytes per phase, and the bandwidth each phase reaches against the roofline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tracebook.analysis import analyze
    from tracebook.report import Report

__all__ = ["Report", "analyze"]


def __dir__() -> list[str]:
    """Public names too that were not asked for yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the heavy public names only when they are asked for."""
    if name == "analyze":
        from tracebook.analysis import analyze

        return analyze
    if name == "Report":
        from tracebook.report import Report

        return Report
    raise AttributeError(f"module 'tracebook' has no attribute {name!r}")
