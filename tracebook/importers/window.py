"""Windows of a capture: from and to, in ns or in percent of the time with kernels."""

from __future__ import annotations

from dataclasses import dataclass

from tracebook.errors import TraceError

Span = tuple[int, int]


@dataclass(frozen=True)
class Percent:
    """A place in a capture: 0 is the start of the first kernel, 100 the end of the last."""

    value: float

    def __post_init__(self) -> None:
        if not 0 <= self.value <= 100:
            raise TraceError(
                f"{self.value:g} % is no place in a capture.", "Give a percent from 0 to 100."
            )


At = int | Percent


@dataclass(frozen=True)
class Selection:
    """Which kernels are wanted; None means all. Kernels that start in [from, to)."""

    device: int | None = None
    pid: int | None = None
    from_ns: At | None = None
    to_ns: At | None = None

    @property
    def needs_span(self) -> bool:
        """Whether the time of the whole capture must be known first."""
        return isinstance(self.from_ns, Percent) or isinstance(self.to_ns, Percent)

    def window(self, span: Span | None) -> tuple[int | None, int | None]:
        """From and to in ns; `span` is the time of the whole capture, where it is needed."""
        return _at(self.from_ns, span), _at(self.to_ns, span, last=True)


def _at(place: At | None, span: Span | None, *, last: bool = False) -> int | None:
    if not isinstance(place, Percent):
        return place
    if span is None or place.value == (100 if last else 0):
        return None
    return span[0] + round((span[1] - span[0]) * place.value / 100)
