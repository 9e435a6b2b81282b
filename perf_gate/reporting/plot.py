"""What every plot has: a title that says what it shows, a description, its data as a table, and a way to draw it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any
from xml.etree import ElementTree

from perf_gate.reporting.canvas import Canvas, drawing
from perf_gate.reporting.data_table import DataTable
from perf_gate.reporting.palette import named
from perf_gate.showing.plain import plain

PHONE = 360
DESK = 1040

_HREF = "{http://www.w3.org/1999/xlink}href"
_REFERENCE = re.compile(r"url\(#")
_FONT = re.compile(r"font: (?:(\d+|bold|normal) )?([\d.]+)px [^;]*")


class Plot(ABC):
    """A plot that is drawn for one width or for several.

    widths: in pixels; a page shows the widest that fits.
    """

    widths: tuple[int, ...] = (PHONE,)

    @property
    @abstractmethod
    def title(self) -> str:
        """What it shows, e.g. "No metric is worse than allowed"."""

    @property
    @abstractmethod
    def description(self) -> str:
        """How to read it, and the same for whoever does not see it."""

    @property
    @abstractmethod
    def data_table(self) -> DataTable:
        """The data that is drawn."""

    @abstractmethod
    def height(self, width: int) -> float:
        """Height in pixels of the drawing without its title."""

    @abstractmethod
    def paint(self, canvas: Canvas) -> None:
        """Draw it."""

    def inline(self, key: str) -> list[str]:
        """SVG elements for an HTML page, one per width, narrowest first. key: unique in the page."""
        found = []
        for width in self.widths:
            with drawing():
                canvas = Canvas(width, self.height(width))
                self.paint(canvas)
                text = canvas.svg()
            found.append(_embedded(text, f"{key}-{width}", self.title, self.description))
        return found

    def files(self) -> dict[str, bytes]:
        """Ending -> content of a file that holds the plot with its title, drawn for its largest width."""
        width = self.widths[-1]
        with drawing():
            canvas = Canvas(width, self.height(width), self.title)
            self.paint(canvas)
            return {".svg": canvas.svg(ground=True).encode("utf-8"), ".png": canvas.png()}


def _embedded(text: str, key: str, title: str, description: str) -> str:
    """An SVG document as an element of a page: ids made unique, colours by name, title and description inside."""
    root = ElementTree.fromstring(text)  # noqa: S314 - our own drawing
    for element in root.iter():
        element.tag = element.tag.partition("}")[2]
        for name, value in list(element.attrib.items()):
            del element.attrib[name]
            element.set(*_attribute(name, value, key))
    for metadata in root.findall("metadata"):
        root.remove(metadata)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{key}-title {key}-desc")
    for name, words in (("desc", description), ("title", title)):
        element = ElementTree.Element(name, {"id": f"{key}-{name}"})
        element.text = plain(words)
        root.insert(0, element)
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(name: str, value: str, key: str) -> tuple[str, str]:
    if name == "id":
        return name, f"{key}-{value}"
    if name == _HREF:
        return "href", f"#{key}-{value.removeprefix('#')}"
    if name == "style":
        value = _FONT.sub(_font, value)
    return name, named(_REFERENCE.sub(f"url(#{key}-", value))


def _font(match: re.Match[str]) -> str:
    # The family is the page's.
    weight = f"; font-weight: {match[1]}" if match[1] else ""
    return f"font-size: {match[2]}px{weight}"


def tick(value: float, _position: Any = None) -> str:
    """A number at an axis, with a sign and without needless zeros."""
    return f"{value:+g}".replace("-", "−") if value else "0"
