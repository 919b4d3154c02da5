"""Every code in the source is documented, and nothing else; --strict goes by the level."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

from tracebook.cli import main
from tracebook.compare import comparable
from tracebook.notices import Notice
from tracebook.warning_codes import AlarmError, entry_of, refuse_alarms, warning_codes

ROOT = Path(__file__).parents[1]
TRACE = ROOT / "fixtures" / "full-recipe" / "trace.sqlite"
#: Codes that are made of parts: what the source says, and what it becomes.
MADE = {
    "several_{many}": ["several_devices", "several_processes"],
    "unknown_{key}": [f"unknown_{key}" for _, _, key, _, _ in comparable._FACTS],
    "{row.quantity}_worse": ["step_worse", "target_layers_worse"],
}
_CODE = re.compile(r"[a-z]+(_[a-z]+)*")


def codes_in_the_source() -> set[str]:
    found: set[str] = set()
    for path in sorted((ROOT / "tracebook").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "Notice":
                continue
            code = node.args[0] if node.args else None
            if isinstance(code, ast.Constant):
                found.add(code.value)
            elif isinstance(code, ast.JoinedStr):
                found |= set(MADE[ast.unparse(code)[2:-1]])
            elif isinstance(code, ast.Name):  # from a table of the module: first of a tuple
                firsts = [
                    t.elts[0].value
                    for t in ast.walk(tree)
                    if isinstance(t, ast.Tuple) and t.elts and isinstance(t.elts[0], ast.Constant)
                ]
                codes = {f for f in firsts if isinstance(f, str) and _CODE.fullmatch(f)}
                assert codes, path
                found |= {c for c in codes if "_" in c or c == "synthetic"}
    return found


def test_every_code_is_documented_and_every_entry_is_used():
    codes = codes_in_the_source()
    assert len(codes) > 70
    assert [code for code in sorted(codes) if entry_of(code) is None] == []
    used = {entry_of(code).code for code in codes}
    assert sorted(set(warning_codes()) - used) == []


def test_the_page_is_that_of_the_data(request):
    script = runpy.run_path(str(ROOT / "scripts" / "make_warnings.py"))
    page = ROOT / "docs" / "warnings.md"
    if request.config.getoption("--accept"):
        page.write_text(script["page"](), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == script["page"](), "pytest --accept writes it anew"


def test_alarms_are_fatal_and_notes_are_not():
    refuse_alarms([Notice("synthetic", "x"), Notice("trimmed", "x")])
    with pytest.raises(AlarmError, match="few_steps"):
        refuse_alarms([Notice("synthetic", "x"), Notice("few_steps", "x")])
    with pytest.raises(AlarmError, match="of_another_version"):
        refuse_alarms([Notice("of_another_version", "x")])


def test_strict_still_writes_a_report_and_leaves_with_1(tmp_path, capsys):
    out = tmp_path / "report.json"
    arguments = ["report", str(TRACE), "--steps", "2", "--format", "json", "-o", str(out)]
    assert main([*arguments, "--strict"]) == 1
    assert "--strict: few_steps." in capsys.readouterr().err
    assert out.exists()
    assert main(arguments) == 0
    assert main(["report", str(TRACE), "--strict"]) == 0  # synthetic is a note


def test_strict_saves_nothing_doubtful(tmp_path):
    out = tmp_path / "base.json"
    arguments = ["save", str(TRACE), "--steps", "2", "-o", str(out)]
    assert main([*arguments, "--strict"]) == 1
    assert not out.exists()
    assert main(arguments) == 0


def test_strict_kernels(tmp_path):
    out = str(tmp_path / "rows.csv")
    assert main(["kernels", str(TRACE), "-o", out, "--strict"]) == 0
    assert main(["kernels", str(TRACE), "-o", out, "--to", "5ms", "--strict"]) == 1
