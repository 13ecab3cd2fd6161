# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws a matplotlib figure as compact, reproducible SVG: text as text, colours as classes that follow
the reader's colour scheme."""

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox, Transform

# The layout is in points, 72 per inch, shown at 96 pixels per inch if the page is wide enough.
POINTS = 72
SHOWN = 96 / POINTS
ANCHORS = {"left": (0.0, ""), "center": (0.5, "middle"), "right": (1.0, "end")}
# Prefix of the classes of font sizes
SIZE = "size"
# A closed path of this many points along the axes is a rectangle.
CORNERS = 5


def svg(figure: Figure, title: str, colours: Mapping[str, tuple[str, str]]) -> str:
    """`colours`: by name, the colour that the figure uses, for light pages, and the one for dark pages."""
    figure.set_dpi(POINTS)
    renderer = _Renderer(figure, {light: name for name, (light, _) in colours.items()})
    figure.draw(renderer)
    width, height = (_number(side) for side in (renderer.width, renderer.height))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{_number(renderer.width * SHOWN)}" height="{_number(renderer.height * SHOWN)}"'
        ' role="img">',
        f"<title>{escape(title)}</title>",
        *_style(colours, renderer.used), *renderer.elements(), "</svg>\n"])


def _style(colours: Mapping[str, tuple[str, str]], used: set[str]) -> list[str]:
    light, dark = ("".join(f".{name}{{color:{pair[scheme]}}}"
                           for name, pair in colours.items() if name in used)
                   for scheme in (0, 1))
    sizes = sorted(name for name in used if name.startswith(SIZE))
    return ["<style>", "svg{font-family:sans-serif}text,.fill{fill:currentColor}"
            ".line{fill:none;stroke:currentColor}.bold{font-weight:bold}"
            + "".join(f".{name}{{font-size:{name.removeprefix(SIZE).replace('-', '.')}px}}"
                      for name in sizes),
            light, f"@media(prefers-color-scheme:dark){{{dark}}}", "</style>"]


class _Renderer(RendererBase):
    def __init__(self, figure: Figure, names: Mapping[str, str]) -> None:
        super().__init__()
        self.width, self.height = figure.bbox.size
        self.names = names
        self.used: set[str] = set()
        # Name and common attributes of elements that look the same, and the differing ones of each
        self.drawn: list[tuple[str, str, list[str]]] = []

    def elements(self) -> Iterator[str]:
        for name, attributes, parts in self.drawn:
            if name == "path":
                yield f'<path {attributes} d="{"".join(parts)}"/>'
            elif len(parts) == 1:
                yield f"<text {attributes} {parts[0]}</text>"
            else:
                yield from (f"<g {attributes}>", *(f"<text {part}</text>" for part in parts), "</g>")

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def draw_path(self, gc: GraphicsContextBase, path: Path, transform: Transform,
                  rgbFace: object = None) -> None:
        clip = gc.get_clip_rectangle()
        if rgbFace is not None and to_hex(rgbFace, keep_alpha=True)[7:] != "00":
            self._path("fill " + self._name(rgbFace), _area(path.transformed(transform), clip))
        if gc.get_linewidth() > 0 and gc.get_alpha() != 0 and gc.get_rgb()[3] > 0:
            cleaned = path.cleaned(transform, clip=clip.extents if clip and rgbFace is None else None)
            dashes = gc.get_dashes()[1]
            more = f' stroke-width="{_number(gc.get_linewidth())}"'
            if dashes is not None:
                more += f' stroke-dasharray="{" ".join(map(_number, dashes))}"'
            self._path("line " + self._name(gc.get_rgb()), cleaned, more)

    def draw_markers(self, gc: GraphicsContextBase, marker_path: Path, marker_trans: Transform,
                     path: Path, trans: Transform, rgbFace: object = None) -> None:
        """Round markers as dots: lines of length 0 with round ends."""
        if marker_path.codes is None or Path.CURVE4 not in marker_path.codes:
            super().draw_markers(gc, marker_path, marker_trans, path, trans, rgbFace)
            return
        diameter = marker_path.get_extents(marker_trans).width + gc.get_linewidth()
        more = f' stroke-width="{_number(diameter)}" stroke-linecap="round"'
        dots = [f"M{_number(x)} {_number(self.height - y)}h0" for x, y in trans.transform(path.vertices)]
        self._add("path", f'class="line {self._name(rgbFace)}"{more}', dots)

    def draw_text(self, gc: GraphicsContextBase, x: float, y: float, s: str, prop: FontProperties,
                  angle: float, ismath: bool = False, mtext: Text | None = None) -> None:
        """Anchored at its alignment, so that it stays in place with another font."""
        part, anchor = ANCHORS[mtext.get_horizontalalignment() if mtext else "left"]
        offset = part * self.get_text_width_height_descent(s, prop, ismath)[0]
        upright = angle == 0
        place = (x + offset, y) if upright else (x, y - offset)
        across, down = (_number(value) for value in place)
        bold = " bold" if prop.get_weight() == "bold" else ""
        size = SIZE + _number(prop.get_size_in_points()).replace(".", "-")
        self.used.add(size)
        attributes = f'class="{self._name(gc.get_rgb())} {size}{bold}"'
        attributes += f' text-anchor="{anchor}"' if anchor else ""
        turned = "" if upright else f' transform="rotate({_number(-angle)} {across} {down})"'
        self._add("text", attributes, [f'x="{across}" y="{down}"{turned}>{escape(s)}'])

    def _name(self, colour: object) -> str:
        name = self.names[to_hex(colour)]
        self.used.add(name)
        return name

    def _path(self, names: str, path: Path | None, more: str = "") -> None:
        if path is not None:
            self._add("path", f'class="{names}"{more}', [_outline(path, self.height)])

    def _add(self, name: str, attributes: str, parts: list[str]) -> None:
        """Merges adjacent elements that look the same."""
        if self.drawn and self.drawn[-1][:2] == (name, attributes):
            self.drawn[-1][2].extend(parts)
        else:
            self.drawn.append((name, attributes, parts))


def _area(path: Path, clip: Bbox | None) -> Path | None:
    """The visible part of an area: of a rectangle, the part in `clip`."""
    corners = path.vertices
    if clip is None or len(corners) != CORNERS:
        return path
    seen = Bbox.intersection(path.get_extents(), clip)
    if seen is None:
        return None
    return Path([(seen.x0, seen.y0), (seen.x1, seen.y0), (seen.x1, seen.y1), (seen.x0, seen.y1),
                 (seen.x0, seen.y0)], path.codes)


def _outline(path: Path, height: float) -> str:
    """The path as SVG commands; straight lines only."""
    parts = []
    last = ("", "")
    for (x, y), code in path.iter_segments(curves=False, simplify=False):
        at = (_number(x), _number(height - y))
        if code == Path.CLOSEPOLY:
            parts.append("z")
        elif code == Path.MOVETO:
            parts.append(f"M{at[0]} {at[1]}")
        elif at[1] == last[1]:
            parts.append(f"H{at[0]}" if at != last else "")
        else:
            parts.append(f"V{at[1]}" if at[0] == last[0] else f"L{at[0]} {at[1]}")
        last = at
    return "".join(parts)


def _number(value: float) -> str:
    """Rounded to a tenth of a point."""
    return f"{round(value, 1) + 0:.1f}".removesuffix(".0")
