from __future__ import annotations

import pytest
from handmade import make_report

from tracebook.cli import main
from tracebook.cli.plot_command import KINDS
from tracebook.plots import KINDS as DRAWN

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture
def saved_report(tmp_path):
    path = tmp_path / "r.json"
    make_report().save(path, steps=True)
    return path


def test_the_command_offers_what_can_be_drawn():
    assert tuple(DRAWN) == KINDS


@pytest.mark.parametrize("ending", MAGIC)
def test_a_picture_is_written(saved_report, tmp_path, ending, capsys):
    out = tmp_path / f"out{ending}"
    assert main(["plot", str(saved_report), "--kind", "timeline", "-o", str(out)]) == 0
    assert out.read_bytes().startswith(MAGIC[ending])
    assert capsys.readouterr().out == ""


def test_the_same_report_gives_the_same_file(saved_report, tmp_path):
    for name in ("a.svg", "b.svg"):
        args = ["plot", str(saved_report), "--kind", "layers", "-o", str(tmp_path / name)]
        assert main(args) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_several_runs_make_one_breakdown(saved_report, tmp_path):
    out = tmp_path / "out.svg"
    runs = [str(saved_report), str(saved_report)]
    assert main(["plot", *runs, "--kind", "breakdown", "-o", str(out)]) == 0
    assert "(2)" in out.read_text()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--kind", "steps", "-o", "out.gif"], ".png"),
        (["--kind", "magic", "-o", "out.png"], "magic"),
        (["--kind", "steps", "-o", "out.png", "--width", "1"], "--width"),
        (["r.json", "--kind", "steps", "-o", "out.png"], "takes one RUN"),
    ],
)
def test_wrong_usage_is_2(saved_report, args, said, capsys):
    assert main(["plot", str(saved_report), *args]) == 2
    assert said in capsys.readouterr().err
