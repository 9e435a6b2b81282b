"""A surface to draw on, measured in pixels from its upper left corner."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from perf_gate.reporting.library import library
from perf_gate.reporting.palette import light
from perf_gate.showing.plain import plain

# matplotlib's unit: with it, a font of 11 points is 11 pixels high and a width of 360 fits a phone.
PIXELS_PER_INCH = 72
SHARPNESS = 2
TITLE_SIZE = 13.0
TITLE_LINE = 17.0
MARGIN = 12.0
_INK = light("ink")
RC = {
    # Whatever is not given a colour of ours would keep its own in both schemes.
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("patch.facecolor", "patch.edgecolor", "lines.color", "grid.color", "hatch.color"), _INK),
    # Names are other people's text: a dollar sign in them is no formula.
    "text.parse_math": False,
    # Text stays text: it can be read aloud, searched and copied.
    "svg.fonttype": "none",
    # With ids that do not vary, the same figures give the same file.
    "svg.hashsalt": "perf-gate",
    "font.family": "sans-serif",
    "axes.unicode_minus": True,
}


class Canvas:
    """A matplotlib figure of fixed size. title: drawn above everything else, in as many lines as it needs."""

    def __init__(self, width: float, height: float, title: str = "") -> None:
        """Make room for the title. Raises ReportError without matplotlib."""
        lines = textwrap.wrap(plain(title), max(int(width / (0.62 * TITLE_SIZE)), 20))
        self._top = MARGIN + TITLE_LINE * len(lines) if lines else 0.0
        self.width, self.height = width, height + self._top
        make = library("matplotlib.figure").Figure
        self.figure = make(figsize=(self.width / PIXELS_PER_INCH, self.height / PIXELS_PER_INCH), dpi=PIXELS_PER_INCH)
        self.figure.patch.set_alpha(0)
        for number, line in enumerate(lines):
            self._write(MARGIN, MARGIN + TITLE_LINE * (number + 0.5), line, size=TITLE_SIZE, weight="bold")

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Write one line, centred on the height `y`. style: color (a name), size, align, weight."""
        self._write(x, y + self._top, plain(text), **style)

    def _write(
        self, x: float, y: float, text: str, *, color: str = "ink", size: float = 11.0, align: str = "left",
        weight: str = "normal",
    ) -> None:  # fmt: skip
        self.figure.text(
            x / self.width, 1 - y / self.height, text,
            color=light(color), fontsize=size, ha=align, va="center_baseline", fontweight=weight,
        )  # fmt: skip

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """matplotlib axes at this place, bare but for the ticks below it."""
        bottom = self.height - self._top - top - height
        axes = self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height), facecolor="none"
        )
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(light("line"))
        axes.tick_params(axis="both", colors=light("muted"), labelsize=10, length=3, pad=3)
        axes.set_yticks([])
        axes.ticklabel_format(axis="x", useOffset=False, style="plain")
        return axes

    def svg(self, *, ground: bool = False) -> str:
        """The drawing as SVG. ground: with a background of its own, for whoever shows it on an unknown one."""
        return self._saved("svg", ground, metadata={"Date": None}).decode("utf-8")

    def png(self) -> bytes:
        """The drawing as PNG in light colours, at twice its size."""
        return self._saved("png", ground=True, dpi=PIXELS_PER_INCH * SHARPNESS)

    def _saved(self, kind: str, ground: bool, **options: Any) -> bytes:
        self.figure.patch.set_alpha(1 if ground else 0)
        self.figure.patch.set_facecolor(light("ground"))
        stream = BytesIO()
        with warnings.catch_warnings():
            # A name may hold letters that matplotlib's font lacks; a browser has them.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            self.figure.savefig(stream, format=kind, **options)
        return stream.getvalue()


@contextmanager
def drawing() -> Iterator[None]:
    """Settings under which everything is drawn, whatever the user's own matplotlibrc says."""
    matplotlib = library("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        matplotlib.rcParams["axes.prop_cycle"] = library("cycler").cycler(color=[light("ink")])
        yield
