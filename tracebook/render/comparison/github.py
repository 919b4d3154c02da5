"""A check as workflow commands of GitHub Actions: annotations in the log of the job."""

from __future__ import annotations

from tracebook.compare.comparison import Comparison
from tracebook.compare.outcome import Outcome, judge
from tracebook.render.comparison.words import clean

_LEVELS = {"passed": "notice", "regression": "error"}


def render(found: Comparison, outcome: Outcome | None) -> str:
    """Write one annotation for the result and one for each reason and caution."""
    judged = outcome or judge(found)
    level = _LEVELS.get(judged.state, "warning")
    lines = [_command(level, "tracebook check", judged.headline)]
    for reason in judged.reasons:
        hint = f" {reason.hint}" if reason.hint else ""
        lines.append(_command(level, reason.code.replace("_", " "), f"{reason.message}{hint}"))
    for caution in found.cautions:
        lines.append(_command("notice", caution.code.replace("_", " "), caution.message))
    return "\n".join(lines) + "\n"


def _command(level: str, title: str, message: str) -> str:
    """One workflow command, escaped as its documentation asks."""
    text = clean(message).replace("%", "%25")
    named = clean(title).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={named}::{text}"
