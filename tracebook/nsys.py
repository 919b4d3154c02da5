"""The only place that runs the nsys binary; each failure becomes a sentence with a remedy."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracebook.cache import cached
from tracebook.errors import NsysError
from tracebook.progress import waiting

#: Where NVIDIA's packages put it, the CUDA toolkit's copy last.
INSTALL_PATTERNS = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
)
_SQLITE_MAGIC = b"SQLite format 3\x00"
_VERSION_TIMEOUT_S = 60.0
_EXPORT_TIMEOUT_S = 3600.0
_VERSION = re.compile(r"\b(20\d\d(?:\.\d+){1,3})")
_INSTALL_HINT = (
    "Install Nsight Systems, or set TRACEBOOK_NSYS to the nsys binary, or export on the "
    "machine that recorded it: nsys export --type sqlite REPORT.nsys-rep"
)

#: How a report begins; the version follows as 2023@4@4@54-...
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report "

#: What nsys and its importer write when they fail, in small letters, and what it means. The
#: first pattern of each line is what nsys 2023.4.4 wrote when it was made to fail so.
_CAUSES = (
    ("space", r"database or disk is full|no space left|disk (is )?full"),
    (
        "newer",
        r"newer than your current version|newer version"
        r"|version[^\n]{0,80}(not supported|unsupported|too new)"
        r"|(unsupported|unknown|incompatible)[^\n]{0,80}version",
    ),
    (
        "truncated",
        r"section table reference magic|version tag is not found in the stream"
        r"|truncat|unexpected end|end of file|\beof\b|corrupt|premature|cannot parse"
        r"|failed to parse|invalid (report|file)|not a valid",
    ),
    ("importer", r"importer binary and its dependencies were not found|error while loading shared"),
)


@dataclass(frozen=True)
class NsysResult:
    """A finished run of nsys: exit status (negative: killed by a signal) and its output."""

    status: int
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line that says something, for messages."""
        lines = [line.strip() for line in (self.stdout + "\n" + self.stderr).splitlines()]
        told = [line for line in lines if line]
        return _printable(told[-1])[:300] if told else "nothing was written to stderr"


def find_nsys(given: str | Path | None = None) -> Path:
    """Find the nsys binary.

    Looked at in order: `given`, the variable TRACEBOOK_NSYS, PATH, the usual install
    folders (newest first).

    Raises:
        NsysError: There is none, or the one that was named cannot be run.
    """
    for origin, named in (
        ("The nsys given", given),
        ("TRACEBOOK_NSYS", os.environ.get("TRACEBOOK_NSYS")),
    ):
        if named:
            found = shutil.which(str(named))
            if found is None:
                raise NsysError(f"{origin} is {named}, which cannot be run.", _INSTALL_HINT)
            return Path(found).absolute()
    on_path = shutil.which("nsys")
    if on_path:
        return Path(on_path).absolute()
    for pattern in INSTALL_PATTERNS:
        runnable = [place for place in _matching(pattern) if os.access(place, os.X_OK)]
        if runnable:
            return max(runnable, key=lambda place: _numbers(str(place)))
    raise NsysError(
        "nsys is not installed: it is neither on PATH nor in /opt/nvidia.", _INSTALL_HINT
    )


def nsys_version(nsys: Path) -> str | None:
    """The version that `nsys --version` prints, such as 2025.3.2.474, None where it says none.

    Raises:
        NsysError: It cannot be run.
    """
    result = run_nsys(nsys, ["--version"], timeout_s=_VERSION_TIMEOUT_S)
    found = _VERSION.search(result.stdout + result.stderr)
    return found[1] if found else None


def report_version(report: Path) -> str | None:
    """The version of nsys that wrote a report, as its first bytes tell; None where they do not."""
    try:
        with report.open("rb") as file:
            head = file.read(200)
    except OSError:
        return None
    if not head.startswith(_REPORT_MAGIC):
        return None
    told = head[len(_REPORT_MAGIC) :].decode("ascii", "replace").replace("@", ".")
    found = _VERSION.match(told)
    return found[1] if found else None


def run_nsys(
    nsys: Path, arguments: Sequence[str], *, timeout_s: float, folder: Path | None = None
) -> NsysResult:
    """Run nsys to its end and keep what it writes.

    Args:
        nsys: The binary.
        arguments: Its arguments.
        timeout_s: After this many seconds it is stopped, its children included.
        folder: Where it is run, else here.

    Raises:
        NsysError: It cannot be started, or did not finish in time.
    """
    try:
        process = subprocess.Popen(
            [str(nsys), *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise NsysError(
            f"{nsys} cannot be run: {error.strerror or error}.",
            "Install Nsight Systems for this machine, or set TRACEBOOK_NSYS.",
        ) from error
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _stop(process)
        raise NsysError(
            f"nsys {arguments[0]} did not finish within {timeout_s:g} s and was stopped.",
            "Run it by hand to see what it waits for, and give its output.",
        ) from None
    except BaseException:
        _stop(process)
        raise
    return NsysResult(process.returncode, stdout, stderr)


def profile(words: Sequence[str]) -> None:
    """Run a whole `nsys profile` command in the user's terminal.

    Raises:
        NsysError: It cannot be started, or left with another status than 0.
    """
    try:
        status = subprocess.run(words, check=False).returncode
    except OSError as error:
        raise NsysError(f"{words[0]} cannot be run: {error.strerror}.", _INSTALL_HINT) from error
    if status:
        raise NsysError(
            f"nsys profile left with exit code {status}.", "What was printed above says why."
        )


def export(report: Path, *, nsys: str | Path | None = None) -> Path:
    """Export a report to SQLite, once for each content, in the cache directory.

    Args:
        report: A .nsys-rep or .qdrep file; nothing is written beside it.
        nsys: The binary, else it is looked for.

    Returns:
        Path of the SQLite file.

    Raises:
        NsysError: nsys is missing or failed; the message says why as far as nsys tells.
        TracebookError: The cache directory cannot be used.
    """

    def make(output: Path) -> None:
        binary = find_nsys(nsys)
        arguments = ["export", "--type", "sqlite", "--force-overwrite", "true"]
        arguments += ["--output", str(output), str(report.resolve())]
        with waiting(f"nsys exports {report.name}"):
            result = run_nsys(binary, arguments, timeout_s=_EXPORT_TIMEOUT_S)
        # With the disk full nsys 2023.4.4 leaves with status 0 and an empty file.
        if result.status != 0 or _cause(result) == "space" or not _is_sqlite(output):
            raise _failure(report, binary, result, output)

    return cached("exports", report, ".sqlite", make)


def kernel_stats(export_file: Path, *, nsys: str | Path | None = None) -> str:
    """What `nsys stats` says of the kernels in an SQLite export, as the text of its CSV.

    Nothing is written beside the export.

    Args:
        export_file: The SQLite file.
        nsys: The binary, else it is looked for.

    Raises:
        NsysError: nsys is missing or failed.
    """
    binary = find_nsys(nsys)
    with tempfile.TemporaryDirectory(prefix="tracebook-") as folder:
        link = Path(folder) / "trace.sqlite"  # nsys goes by the ending
        link.symlink_to(export_file.resolve())
        arguments = ["stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", str(link)]
        result = run_nsys(binary, arguments, timeout_s=_EXPORT_TIMEOUT_S)
    # It leaves with 0 also where the report could not be made, and then says why on stderr.
    if result.status != 0 or "Time (%)" not in result.stdout:
        raise NsysError(
            f"nsys stats could not sum up the kernels of {export_file} (exit code "
            f"{result.status}): {result.last_words}",
            "Try it by hand: nsys stats --report cuda_gpu_kern_sum FILE.sqlite",
        )
    return result.stdout


def run_recipe(
    recipe: str,
    inputs: Sequence[Path],
    output: Path,
    arguments: Sequence[str] = (),
    *,
    nsys: str | Path | None = None,
) -> None:
    """Run `nsys recipe` with the user's nsys and its Python.

    A recipe exports the report beside it, so that it is given links in a folder that is
    thrown away.

    Args:
        recipe: Its name.
        inputs: Reports, or the two folders that `diff` compares.
        output: Folder to make; it must not exist.
        arguments: Passed on as they are.
        nsys: The binary, else it is looked for.

    Raises:
        NsysError: nsys or what its recipes need is missing, it failed, or it made nothing.
    """
    binary = find_nsys(nsys)
    with tempfile.TemporaryDirectory(prefix="tracebook-") as folder:
        links = []
        for number, path in enumerate(inputs):
            link = Path(folder) / (path.name if len(inputs) == 1 else f"{number}-{path.name}")
            link.symlink_to(path.resolve())
            links.append(str(link))
        made = Path(folder) / "made"
        asked = ["recipe", recipe, "--input", *links, "--output", str(made), *arguments]
        if recipe == "diff":  # it has no --output and makes its folder where it is run
            asked = ["recipe", recipe, "--input", *links, *arguments]
        result = run_nsys(binary, asked, timeout_s=_EXPORT_TIMEOUT_S, folder=Path(folder))
        if recipe == "diff":
            made = next((p for p in Path(folder).glob("*-diff-*") if p.is_dir()), made)
        if result.status != 0 or not made.is_dir():
            raise _recipe_failure(recipe, binary, result)
        part = output.with_name(f".{output.name}.{os.getpid()}.part")
        try:
            shutil.copytree(made, part)
            part.replace(output)
        except OSError as error:
            raise NsysError(
                f"{output} cannot be written: {error.strerror or error}.",
                "Give another folder, on a disk with space.",
            ) from error
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _recipe_failure(recipe: str, nsys: Path, result: NsysResult) -> NsysError:
    text = f"{result.stdout}\n{result.stderr}"
    module = re.search(r"No module named '([\w.]+)'", text)
    if module and module[1] == "asyncore":
        return NsysError(
            f"The recipes of {nsys} need Python 3.11 or older: it imports asyncore.",
            "Put an older python3 first on PATH.",
        )
    if module:
        return NsysError(
            f"The recipes of {nsys} need the Python package {module[1]}.",
            "Install numpy, pandas, psutil and pyarrow into the python3 that is first on PATH.",
        )
    if "third_party" in text and "cannot find" in text.lower():
        return NsysError(
            f"The recipes of {nsys} are packaged without their folder third_party.",
            "Make it: an empty nsys_recipe/third_party in a writable copy of its target folder.",
        )
    if result.status == 0 and "no output generated" in text.lower():
        return NsysError(
            f"nsys recipe {recipe} found nothing to work on in this report "
            '("No output generated.").',
            "Check that the capture holds what the recipe reads: see nsys recipe NAME --help.",
        )
    return NsysError(
        f"nsys recipe {recipe} failed (exit code {result.status}): {result.last_words}",
        f"Try it by hand: nsys recipe {recipe} --help",
    )


def _failure(report: Path, nsys: Path, result: NsysResult, output: Path) -> NsysError:
    text = f"{result.stdout}\n{result.stderr}"
    cause = _cause(result)
    signal_number = -result.status if result.status < 0 else result.status - 128
    if cause == "space":
        return NsysError(
            f"The disk is full: nsys could not write the export of {report}.",
            f"Make space in {output.parents[1]}, or set XDG_CACHE_HOME to another disk.",
        )
    if cause == "newer":
        ours = nsys_version(nsys) or "of unknown version"
        theirs = report_version(report)
        theirs = theirs or next((v for v in _VERSION.findall(text) if v != ours), None)
        made_by = f"nsys {theirs}" if theirs else "a newer nsys"
        return NsysError(
            f"{report} was made by {made_by}, and {nsys} is {ours}.",
            "Export with the nsys that recorded it, or install a newer one and set TRACEBOOK_NSYS.",
        )
    if cause == "truncated":
        return NsysError(
            f"nsys cannot read {report}: the report is truncated or damaged ({result.last_words}).",
            "Copy it again; a run that was killed may have to be recorded again.",
        )
    if cause == "importer":
        return NsysError(
            f"{nsys} lacks its importer, or libraries that the importer needs "
            f"({result.last_words}).",
            "Install the whole of Nsight Systems, its host part included, or set TRACEBOOK_NSYS.",
        )
    if signal_number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT):
        name = signal.Signals(signal_number).name
        return NsysError(
            f"nsys was ended by {name} while exporting {report}.",
            "SIGKILL usually means that memory ran out: close other programs, or export on a "
            "larger machine.",
        )
    if result.status == 0:
        return NsysError(
            f"nsys exported {report} without an error, but wrote no SQLite file "
            f"({result.last_words}).",
            f"Try it by hand: nsys export --type sqlite {report.name}",
        )
    return NsysError(
        f"nsys could not export {report} (exit code {result.status}): {result.last_words}",
        f"Try it by hand: nsys export --type sqlite {report.name}",
    )


def _cause(result: NsysResult) -> str | None:
    text = f"{result.stdout}\n{result.stderr}".lower()
    return next((name for name, pattern in _CAUSES if re.search(pattern, text)), None)


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    except OSError:
        return False


def _stop(process: subprocess.Popen[str]) -> None:
    """Kill nsys and the importer that it starts."""
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _matching(pattern: str) -> list[Path]:
    parts = Path(pattern).parts
    fixed = next((at for at, part in enumerate(parts) if "*" in part), len(parts) - 1)
    found = Path(*parts[:fixed]).glob("/".join(parts[fixed:]))
    return [path for path in found if path.is_file()]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
