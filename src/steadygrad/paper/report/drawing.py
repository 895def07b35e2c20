"""A figure as SVG and PDF, the same bytes each time."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass

from steadygrad.paper.report import style
from steadygrad.paper.report.section import Figure


@dataclass(frozen=True)
class Drawn:
    svg: bytes
    pdf: bytes
    width: int
    height: int

    @property
    def uri(self) -> str:
        """The SVG as an address. An image of its own, so that ids of clip paths and glyphs cannot clash between figures."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


def draw(figure: Figure) -> Drawn:
    """Draw in our style, without dates in the files; width and height are CSS pixels."""
    with style.use():
        picture = figure.draw()
        svg, pdf = io.BytesIO(), io.BytesIO()
        picture.savefig(svg, format="svg", metadata={"Date": None})
        picture.savefig(pdf, format="pdf", metadata={"CreationDate": None})
        width, height = (round(96 * float(inches)) for inches in picture.get_size_inches())
    return Drawn(rounded(svg.getvalue()), pdf.getvalue(), width, height)


def rounded(svg: bytes) -> bytes:
    """Coordinates of paths and markers to a hundredth of a point, which nobody sees. Not those of scales: letters are scaled."""

    def shorter(places: re.Match[bytes]) -> bytes:
        return re.sub(rb"\d+\.\d{3,}", lambda found: b"%.2f" % float(found[0]), places[0])

    return re.sub(rb' (?:d|x|y)="[^"]*"', shorter, svg)
