"""Tell what a file is by its first bytes, and refuse what cannot be a trace."""

from __future__ import annotations

import zlib
from enum import Enum
from pathlib import Path

from tracebook.errors import NotATrace, TraceError

SQLITE_MAGIC = b"SQLite format 3\x00"
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report "  # every .nsys-rep and .qdrep to nsys 2023.4
_STREAM_MAGIC = b"NVIDIA Nsight Systems Stream "
_LFS_MAGIC = b"version https://git-lfs.github.com/spec/"
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
_EXPORT_HINT = "Give the SQLite export of the run: nsys export --type sqlite REPORT.nsys-rep"


class Kind(Enum):
    """What a path holds."""

    SQLITE = "sqlite"
    REPORT = "report"
    FOLDER = "folder"


def sniff(path: Path) -> Kind:
    """Decide by content what `path` is.

    Raises:
        TraceError: Nothing is there, or it cannot be read.
        NotATrace: It is something that cannot be a trace.
    """
    try:
        if path.is_dir():
            return Kind.FOLDER
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise NotATrace(f"{path} is not a regular file.", _EXPORT_HINT)
        with path.open("rb") as file:
            head = file.read(4096)
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist.", "Check the path.") from None
    except PermissionError:
        raise TraceError(
            f"{path} cannot be read: permission denied.", f"Allow reading: chmod u+r {path.name}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{path} cannot be read: {reason}.", "Check the path.") from None
    if head.startswith(SQLITE_MAGIC):
        return Kind.SQLITE
    if head.startswith(_REPORT_MAGIC):
        return Kind.REPORT
    _refuse_known(path, head)
    if path.suffix.lower() in _REPORT_SUFFIXES:
        return Kind.REPORT
    raise NotATrace(f"{path} is neither an SQLite file nor an nsys report.", _EXPORT_HINT)


def _refuse_known(path: Path, head: bytes) -> None:
    if not head:
        raise NotATrace(
            f"{path} is empty.",
            "The export did not finish: run it again and check that the disk has space.",
        )
    if head.startswith(_LFS_MAGIC):
        raise NotATrace(
            f"{path} is a git-LFS pointer, not the file itself.", "Fetch the file: git lfs pull"
        )
    if _STREAM_MAGIC in head[:64]:
        raise NotATrace(
            f"{path} is a raw stream (.qdstrm): nsys recorded the run and could not make a report.",
            "Import it with the QdstrmImporter of the same nsys, or record again.",
        )
    _refuse_ours(path, head)
    for magic, packer in _PACKED.items():
        if head.startswith(magic):
            raise NotATrace(f"{path} is compressed ({packer}).", "Unpack it first.")
    if head.startswith((b"PAR1", b"ARROW1")):
        raise NotATrace(
            f"{path} is a single table of a directory export.", "Give the directory it lies in."
        )
    if _looks_like_text(head):
        raise NotATrace(f"{path} is a text file, not an nsys export.", _EXPORT_HINT)


def _refuse_ours(path: Path, head: bytes) -> None:
    """Tell what our own files are for, packed or not."""
    text = head
    if head.startswith(b"\x1f\x8b"):
        try:
            text = zlib.decompressobj(wbits=31).decompress(head, 4096)
        except zlib.error:
            return
    begin = b"".join(text[:200].split())
    if begin.startswith(b'{"files":{'):
        raise NotATrace(
            f"{path} holds the headers of a checkpoint, not a trace.",
            f"It goes with a trace: --checkpoint {path}",
        )
    if begin.startswith(b'{"schema":"tracebook.baseline/'):
        raise NotATrace(
            f"{path} is a saved run, not a trace.",
            "It is for `tracebook diff` and `check`; `report` and `plot` read it unpacked.",
        )


def _looks_like_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # a letter cut by the end of what was read is fine
            return False
        text = head[: error.start].decode("utf-8")
    odd = sum(1 for letter in text if ord(letter) < 32 and letter not in "\t\n\r\f\x1b")
    return odd == 0
