"""nsys by a stand-in on PATH: every way it can fail, and the cache of what it made."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tracebook import nsys
from tracebook.errors import NsysError, TracebookError
from tracebook.importers import open_trace

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """No real nsys, and a cache of its own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRACEBOOK_NSYS", raising=False)
    monkeypatch.setattr(nsys, "INSTALL_PATTERNS", (f"{tmp_path}/opt/*/bin/nsys",))


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "in" / "run 1.nsys-rep"
    path.parent.mkdir()
    path.write_bytes(b"\x00\x01report")
    return path


def fake(path: Path, body: str) -> Path:
    """An nsys that answers --version and does `body` on export; $OUT is its output path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "#!/bin/sh\nPATH=/usr/bin:/bin\n"
        'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version 2024.5.1.113-1"; '
        "exit 0; fi\n"
        f'echo "$@" >> "{path.parent}/calls"\n'
        'while [ "$1" != --output ]; do shift; done; OUT="$2"\n'
        f"{body}\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def install(tmp_path):
    return lambda body: fake(tmp_path / "bin" / "nsys", body)


def make_export(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);"
            "INSERT INTO StringIds VALUES (1, 'gemm');"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL "
            '(start INTEGER, "end" INTEGER, deviceId INTEGER, demangledName INTEGER);'
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 30, 0, 1);"
        )
    return path


def copying(tmp_path):
    return f'cp "{make_export(tmp_path / "made.sqlite")}" "$OUT"'


def failure(report):
    with pytest.raises(NsysError) as caught:
        nsys.export(report)
    assert caught.value.hint
    assert caught.value.exit_code == 1
    left = [entry.suffix for entry in (report.parents[1] / "cache").rglob("*") if entry.is_file()]
    assert left in ([], [".lock"])
    return caught.value.message


def test_a_report_is_read_through_nsys_and_nothing_is_written_beside_it(tmp_path, report, install):
    install(copying(tmp_path))
    trace = open_trace(report)
    assert trace.kernels.select("start_ns", "end_ns").rows() == [(10, 30)]
    assert trace.names["name"].to_list() == ["gemm"]
    assert trace.info.path == report
    assert [entry.name for entry in report.parent.iterdir()] == [report.name]


def test_messages_about_the_export_name_the_report(tmp_path, report, install):
    install("printf 'SQLite format 3\\0' > \"$OUT\"")
    with pytest.raises(TracebookError) as caught:
        open_trace(report)
    assert str(report) in caught.value.message


def test_the_same_content_is_exported_once(tmp_path, report, install):
    binary = install(copying(tmp_path))
    first = nsys.export(report)
    renamed = report.rename(report.with_name("other.nsys-rep"))
    assert nsys.export(renamed) == first
    assert len((binary.parent / "calls").read_text().splitlines()) == 1
    renamed.write_bytes(b"\x00other")
    assert nsys.export(renamed) != first


def test_the_cache_is_private(tmp_path, report, install):
    install(copying(tmp_path))
    assert nsys.export(report).parent.stat().st_mode & 0o077 == 0


def test_two_at_once_export_once(tmp_path, report, install):
    binary = install(copying(tmp_path))
    results = []
    threads = [threading.Thread(target=lambda: results.append(nsys.export(report))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert len((binary.parent / "calls").read_text().splitlines()) == 1


def test_what_a_killed_process_left_does_not_count(tmp_path, report, install):
    install(copying(tmp_path))
    done = nsys.export(report)
    done.unlink()
    part = done.with_suffix(".part")
    part.mkdir()
    (part / "made.sqlite").write_bytes(b"half")
    assert nsys.export(report).read_bytes() == (tmp_path / "made.sqlite").read_bytes()
    assert not part.exists()


def test_not_installed(report):
    message = failure(report)
    assert "not installed" in message


def test_an_unusable_binary_that_was_named(tmp_path, report, monkeypatch):
    monkeypatch.setenv("TRACEBOOK_NSYS", str(tmp_path / "nowhere"))
    assert "TRACEBOOK_NSYS" in failure(report)
    with pytest.raises(NsysError, match="nsys given"):
        nsys.find_nsys(tmp_path / "nowhere")


def test_the_order_in_which_it_is_looked_for(tmp_path, monkeypatch):
    old = fake(tmp_path / "opt" / "2024.9.1" / "bin" / "nsys", "exit 0")
    new = fake(tmp_path / "opt" / "2024.10.1" / "bin" / "nsys", "exit 0")
    assert nsys.find_nsys() == new
    on_path = fake(tmp_path / "bin" / "nsys", "exit 0")
    assert nsys.find_nsys() == on_path
    monkeypatch.setenv("TRACEBOOK_NSYS", str(old))
    assert nsys.find_nsys() == old
    assert nsys.find_nsys(new) == new


def test_the_version_is_read(install):
    assert nsys.nsys_version(install("exit 0")) == "2024.5.1.113"


def test_a_report_newer_than_nsys_names_both_versions(report, install):
    install('echo "Report version 2026.1.1.204 is not supported" >&2; exit 1')
    message = failure(report)
    assert "2026.1.1.204" in message
    assert "2024.5.1.113" in message


def test_a_report_of_an_untold_newer_version(report, install):
    install('echo "The report was created by a newer version of the tool." >&2; exit 1')
    message = failure(report)
    assert "a newer nsys" in message
    assert "2024.5.1.113" in message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('echo "write: No space left on device" >&2; exit 1', "disk is full"),
        ('echo "Unexpected end of file" >&2; exit 1', "truncated or damaged"),
        ("kill -9 $$", "SIGKILL"),
        ("kill -TERM $$", "SIGTERM"),
        ("exit 137", "SIGKILL"),
        ("exit 0", "wrote no SQLite file"),
        ('echo half > "$OUT"; exit 0', "wrote no SQLite file"),
        ('echo half > "$OUT"; exit 3', "exit code 3"),
        ('echo "something odd" >&2; exit 7', "something odd"),
    ],
)
def test_failures(report, install, body, words):
    install(body)
    assert words in failure(report)


def test_its_last_words_cannot_steer_the_terminal(report, install):
    install("printf '\\033[31mred\\n' >&2; exit 7")
    assert "\x1b" not in failure(report)


def test_it_is_stopped_with_its_children_when_it_takes_too_long(tmp_path, report, install):
    # A child that lived on would hold the pipes open until it had made the file.
    binary = install(f'(sleep 20; touch "{tmp_path}/survived") & wait')
    with pytest.raises(NsysError, match="did not finish within"):
        nsys.run_nsys(binary, ["export", "--output", "x"], timeout_s=0.3)
    assert not (tmp_path / "survived").exists()


def test_a_file_that_is_no_program(tmp_path, report):
    binary = tmp_path / "bin" / "nsys"
    binary.write_bytes(b"\x7fELF not really")
    binary.chmod(0o755)
    assert "cannot be run" in failure(report)


def test_a_cache_that_cannot_be_written(tmp_path, report, install, monkeypatch):
    install(copying(tmp_path))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TracebookError) as caught:
        nsys.export(report)
    assert "XDG_CACHE_HOME" in caught.value.hint


#: As nsys 2023.4.4 said it when it was made to fail.
REAL_WORDS = {
    "newer": (
        "Exportation error: Report was created in Nsight Systems version "
        "(2027.1.1.10-237432681190v0), newer than your current version (2024.5.1.113).",
        1,
        ["2027.1.1.10", "2024.5.1.113"],
    ),
    "truncated": (
        "Exportation error: Section Table Reference magic number mismatch.",
        1,
        ["truncated or damaged"],
    ),
    "not a report": (
        "Exportation error: Version tag is not found in the stream.",
        1,
        ["truncated or damaged"],
    ),
    "disk full": (
        "Failed to close database connection: ...\n[tag_message*] = database or disk is full",
        0,
        ["disk is full"],
    ),
    "no host part": (
        "Importer error status: The importer binary and its dependencies were not found.",
        1,
        ["lacks its importer"],
    ),
}


@pytest.mark.parametrize("case", REAL_WORDS)
def test_failures_in_the_words_of_nsys(report, install, case):
    words, status, told = REAL_WORDS[case]
    install(f'echo "{words}" >&2; printf "SQLite format 3\\0" > "$OUT"; exit {status}')
    message = failure(report)
    assert all(word in message for word in told)


@pytest.mark.parametrize(
    ("head", "version"),
    [
        (b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\n", "2023.4.4.54"),
        (b"NVIDIA Tegra Profiler Report of another kind", None),
        (b"\x00\x01report", None),
        (b"", None),
    ],
)
def test_the_version_in_the_first_bytes_of_a_report(report, head, version):
    report.write_bytes(head)
    assert nsys.report_version(report) == version


def test_a_report_is_told_by_its_content(tmp_path, report, install):
    install(copying(tmp_path))
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\n")
    assert open_trace(report.rename(report.with_name("run.bin"))).kernels.height == 1
