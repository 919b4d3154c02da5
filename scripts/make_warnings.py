"""Write docs/warnings.md from tracebook/data/warnings.toml."""

from __future__ import annotations

from pathlib import Path

from tracebook.warning_codes import PLACES, warning_codes

_HEAD = """# Warnings

Every warning has a code, in the JSON of a report as `warnings[].code`. An **alarm** says that
figures may be wrong or mislead; `--strict` makes it fatal (exit 1) in `report`, `kernels` and
`save`. A **note** tells something that was asked for, or what a report cannot show.

This page is made from `tracebook/data/warnings.toml`.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for place, heading in PLACES.items():
        parts.append(f"## {heading}\n")
        parts.append("| Code | Level | What was seen | Likely causes |")
        parts.append("| --- | --- | --- | --- |")
        parts += [
            f"| `{entry.code}` | {entry.level} | {entry.means} | {entry.causes} |"
            for entry in warning_codes().values()
            if entry.where == place
        ]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    (Path(__file__).parents[1] / "docs" / "warnings.md").write_text(page(), encoding="utf-8")
