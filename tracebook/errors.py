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
        hint: What to do next, or None.
        exit_code: Exit status of the process.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class TraceError(TracebookError):
    """The trace file cannot be used."""


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


class BadHeader(CheckpointError):
    """A safetensors header breaks the format."""


class RunDescriptionError(TracebookError):
    """run.toml or a flag says something that cannot be."""


class RuleError(TracebookError):
    """A kernel rule file is wrong (message carries file and rule)."""


class ReportVersionError(TracebookError):
    """A saved report of another version."""


class NotComparable(TracebookError):
    """Two runs cannot be compared."""

    exit_code = 4
