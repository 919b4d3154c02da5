"""Errors made for people: what is wrong, where, and what to do next.

Everything a user can cause is a `TracebookError`. The command line catches it
in one place, prints the message and the hint, and leaves with `exit_code`:
1 input or environment, 3 a regression was found, 4 runs cannot be compared.
(2, wrong usage, belongs to click.)
"""

from __future__ import annotations


class TracebookError(Exception):
    """Base of all errors a user can cause.

    Attributes:
        message: One sentence: what is wrong and where.
        hint: What to do next; where none is given, what its class advises, or None.
        exit_code: Exit status of the process.
    """

    exit_code = 1
    advice: str | None = None

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.advice


class TraceError(TracebookError):
    """The trace file cannot be used."""

    advice = "Look at it with `tracebook doctor`, or repeat the export."


class NotATrace(TraceError):
    """The path does not hold an Nsight Systems export."""


class MissingTable(TraceError):
    """The export lacks a table that the question needs."""


class CaptureIncomplete(TraceError):
    """The capture was recorded in a way that hides what is asked for."""


class NoDecodeSteps(TraceError):
    """The trace holds kernels but no steady decode."""


class NsysError(TracebookError):
    """The nsys binary is missing or failed."""


class CheckpointError(TracebookError):
    """A checkpoint cannot be read or understood."""

    advice = "Give a checkpoint's directory, a .safetensors or .gguf file, or a header bundle."


class BadHeader(CheckpointError):
    """A safetensors header breaks the format."""

    advice = "Check that it is what it should be, and fetch the file again."


class RunDescriptionError(TracebookError):
    """run.toml or a flag says something that cannot be."""

    advice = "docs/tour.md shows a run description; every key has a flag of the same meaning."


class FlagError(RunDescriptionError):
    """A flag has a value that cannot be: wrong usage, as click has it for its own types."""

    exit_code = 2


class RuleError(TracebookError):
    """A kernel rule file is wrong (message carries file and rule)."""

    advice = "docs/rules.md tells how rules are written."


class ReportVersionError(TracebookError):
    """A saved report of another version."""


class NotComparable(TracebookError):
    """Two runs cannot be compared."""

    exit_code = 4
