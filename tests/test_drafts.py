"""What stands at the place of an output: a link stays a link, a pipe stays a pipe."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tracebook.cli import main
from tracebook.drafts import draft_of

TRACE = Path(__file__).parents[1] / "fixtures" / "mtp3" / "trace.sqlite"

#: Commands that write a file, each by another writer: text, Parquet, SQLite, a picture.
COMMANDS = {
    ".txt": ["report", str(TRACE), "-o"],
    ".parquet": ["kernels", str(TRACE), "-o"],
    ".sqlite": ["trim", str(TRACE), "-o"],
    ".svg": ["plot", str(TRACE), "--kind", "breakdown", "-o"],
}


@pytest.mark.parametrize("suffix", COMMANDS)
def test_a_pipe_is_written_to_and_stays(suffix, tmp_path):
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert main([*COMMANDS[suffix], str(pipe)]) == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    file = tmp_path / f"file{suffix}"
    assert main([*COMMANDS[suffix], str(file)]) == 0
    assert read[0][:16] == file.read_bytes()[:16]
    assert len(read[0]) == file.stat().st_size
    assert sorted(tmp_path.iterdir()) == [file, pipe]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_file_is_replaced(there, tmp_path):
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "file.txt", tmp_path / "link.txt"
    if there:
        file.write_text("old")
    link.symlink_to(Path("folder") / "file.txt")
    assert main([*COMMANDS[".txt"], str(link)]) == 0
    assert link.is_symlink()
    assert "target layers" in file.read_text()
    assert sorted(tmp_path.rglob("*")) == [file.parent, file, link]


def test_a_file_that_fails_on_the_way_leaves_the_one_behind_a_link(tmp_path):
    file, link = tmp_path / "file.txt", tmp_path / "link.txt"
    file.write_text("old")
    link.symlink_to(file)
    with pytest.raises(ZeroDivisionError), draft_of(link) as draft:
        draft.write_text("half")
        raise ZeroDivisionError
    assert file.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_links_in_a_circle_are_refused(tmp_path, capsys):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.symlink_to(two)
    two.symlink_to(one)
    assert main([*COMMANDS[".txt"], str(one)]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert one.is_symlink()


def test_what_is_open_already_is_written_to(tmp_path):
    file = tmp_path / "file.txt"
    with file.open("a") as held:
        held.write("before ")
        held.flush()
        with draft_of(Path(f"/proc/self/fd/{held.fileno()}")) as draft:
            draft.write_text("report")
    # Opened anew by its name, so emptied first: but the file is the same one.
    assert file.read_text() == "report"
