"""Pictures of a report: each gives a matplotlib figure and neither shows nor saves it.

In: saved reports. Out: figures. One module per kind; matplotlib is imported when one is
drawn. `report.plot.KIND()` and `tracebook plot RUN --kind KIND` both end here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tracebook.config import RunDescription
    from tracebook.report import Report

#: Kind and what it shows.
KINDS: dict[str, str] = {
    "breakdown": "Time of a step by phase, for one or several runs, with the bytes' floor.",
    "roofline": "GB/s of phases and matrices against their bytes, under the machine's peak.",
    "steps": "Time of every kept step over the capture, and which phases vary.",
    "timeline": "The kernels of one median step, stream by stream.",
    "layers": "Time, bytes and GB/s layer by layer.",
    "flow": "One token through one layer of each kind, in the GPU's order.",
    "sweep": "Tokens per second over the number of draft tokens, predicted from the run.",
}

#: Width in inches that suits a page.
WIDTH_IN = 9.0


class Plots:
    """The pictures of one report: `report.plot`."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def breakdown(
        self,
        *others: Report,
        names: tuple[str, ...] | None = None,
        width_in: float = WIDTH_IN,
    ) -> Figure:
        """Time of a step by phase as bars, with the time that the bytes take at the peak.

        Args:
            others: Further runs to draw below.
            names: What to call the runs; else the names of their files or folders.
            width_in: Width in inches.
        """
        from tracebook.plots.breakdown import draw

        return draw((self._report, *others), names=names, width_in=width_in)

    def roofline(self, *, width_in: float = WIDTH_IN) -> Figure:
        """Achieved GB/s of phases and matrices against their bytes per step.

        Raises:
            TracebookError: The report has no bytes.
        """
        from tracebook.plots.roofline import draw

        return draw(self._report, width_in=width_in)

    def steps(self, *, width_in: float = WIDTH_IN) -> Figure:
        """Wall time of the kept steps over the capture, and what varies.

        Raises:
            TracebookError: The report was saved without its single steps.
        """
        from tracebook.plots.steps import draw

        return draw(self._report, width_in=width_in)

    def timeline(self, *, width_in: float = WIDTH_IN) -> Figure:
        """The kernels of one median step: streams over time.

        Raises:
            TracebookError: The report was saved without its single steps.
        """
        from tracebook.plots.timeline import draw

        return draw(self._report, width_in=width_in)

    def layers(self, *, width_in: float = WIDTH_IN) -> Figure:
        """Time, bytes and GB/s over the layers.

        Raises:
            TracebookError: No kernel was given a layer.
        """
        from tracebook.plots.layers import draw

        return draw(self._report, width_in=width_in)

    def flow(self, *, layer: int | None = None, width_in: float = WIDTH_IN) -> Figure:
        """One token through one target layer, kernel by kernel.

        Args:
            layer: Layer to draw; else a typical one of each kind.
            width_in: Width in inches.

        Raises:
            TracebookError: The report was saved without its single steps, or there is
                no such layer.
        """
        from tracebook.plots.flow import draw

        return draw(self._report, layer=layer, width_in=width_in)

    def sweep(
        self,
        *others: Report,
        runs: Sequence[RunDescription] | None = None,
        names: tuple[str, ...] | None = None,
        most_drafts: int = 16,
        width_in: float = WIDTH_IN,
    ) -> Figure:
        """Tokens per second that other numbers of draft tokens would give.

        Args:
            others: Further runs to draw.
            runs: Descriptions of the runs; else what the reports say, whose checkpoints
                must then lie where they did.
            names: What to call the runs.
            most_drafts: How far to look.
            width_in: Width in inches.

        Raises:
            TracebookError: Nothing is drafted, a checkpoint is not found, or how many
                drafts are accepted is not known.
        """
        from tracebook.plots.sweep import draw

        return draw(
            (self._report, *others),
            runs=runs,
            names=names,
            most_drafts=most_drafts,
            width_in=width_in,
        )


#: Kinds that draw several runs at once.
SEVERAL = ("breakdown", "sweep")


def plot(kind: str, reports: tuple[Report, ...], **options: Any) -> Figure:
    """Draw a kind of `KINDS` for the reports it takes (one, but for `SEVERAL`)."""
    figure: Figure = getattr(Plots(reports[0]), kind)(*reports[1:], **options)
    return figure
