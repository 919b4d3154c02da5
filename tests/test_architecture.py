"""The shape of the package: who may import whom, what is heavy, what ships."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracebook"

#: Left to right: a module imports only from its own package and from what stands left of it.
ORDER = (
    "errors",
    "notices",
    "printable",
    "drafts",
    "warning_codes",
    "units",
    "phases",
    "phase_styles",
    "config",
    "record",
    "scratch",
    "columns",
    "trace",
    "cache",
    "progress",
    "nsys",
    "importers",
    "opening",
    "verify",
    "capture",
    "machine",
    "checkpoint",
    "kernels",
    "synth",
    "traffic",
    "stats",
    "step_time",
    "regimes",
    "step_detail",
    "records",
    "report",
    "cautions",
    "account",
    "speculation",
    "acceptance",
    "options",
    "analysis",
    "ranks",
    "prediction",
    "predict",
    "kernel_table",
    "sweep",
    "compare",
    "doctor",
    "secrets",
    "trim",
    "plots",
    "perfetto",
    "render",
    "cli",
    "pytest_plugin",
    "__main__",
)

#: Left of the others all the same, but closed to them.
FORBIDDEN = {("kernels", "synth"), ("synth", "kernels"), ("importers", "synth")}

#: What a command may import while it is only being described.
LIGHT = {
    *("tracebook.cli", "tracebook.config", "tracebook.drafts", "tracebook.errors"),
    *("tracebook.printable", "tracebook.render", "tracebook"),
}

MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 450


def stage_of(path: Path) -> str:
    """The top-level module or package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(nodes) -> set[str]:
    """Dotted names that are imported, absolute."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def stages_imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = {
        name.split(".")[1]
        for name in imports_of(ast.walk(tree))
        if name.startswith("tracebook.") and name.split(".")[1] != "__version__"
    }
    return found - {stage_of(path)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_left(path):
    stage = stage_of(path)
    if stage == "__init__":
        return
    assert stage in ORDER, f"say where {stage} stands in ORDER"
    left = ORDER[: ORDER.index(stage)]
    for other in stages_imported(path):
        assert other in left, f"{stage} imports {other}, which is not left of it"
        assert (stage, other) not in FORBIDDEN


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_stay_small(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_the_classifier_does_not_read_the_synthesizers_tables():
    shipped = {path.name for path in (PACKAGE / "data" / "synth").iterdir()}
    for path in (PACKAGE / "kernels").rglob("*.py"):
        text = path.read_text()
        assert not [name for name in shipped if name in text], path
        assert "data/synth" not in text, path


@pytest.mark.parametrize("path", sorted((PACKAGE / "cli").glob("*.py")), ids=lambda path: path.name)
def test_commands_import_nothing_heavy_until_they_run(path):
    body = ast.parse(path.read_text()).body
    for name in imports_of(body):
        if name.startswith("tracebook"):
            assert any(
                name == light or name.startswith(f"{light}.") for light in LIGHT - {"tracebook"}
            ) or name in ("tracebook", "tracebook.__version__"), name
        assert name.split(".")[0] not in ("polars", "numpy", "matplotlib", "rich", "sqlite3")


def test_everything_in_the_package_ships(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (built,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    shipped = set(zipfile.ZipFile(built).namelist())
    for path in PACKAGE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".gitkeep":
            assert str(path.relative_to(ROOT)) in shipped


def test_the_version_stands_in_one_form():
    import tomllib

    import tracebook

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == (
        tracebook.__version__
    )
    assert f"## [{tracebook.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
