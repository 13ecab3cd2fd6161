# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts are small, follow the colour scheme, and have no overlapping elements."""

import itertools
import pathlib
import re
import unittest
from collections.abc import Iterator
from xml.etree import ElementTree

from charts import style
from charts.svg import svg
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

DRAWN = pathlib.Path(__file__).resolve().parents[2] / "docs/notes/charts"
SVG = "{http://www.w3.org/2000/svg}"


def draw(*artists) -> str:
    with rc_context(style.SETTINGS):
        figure = Figure(figsize=(2, 1))
        axes = figure.subplots(gridspec_kw={"left": 0, "right": 1, "top": 1, "bottom": 0})
        axes.set(xlim=(0, 144), ylim=(0, 72), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        for artist in artists:
            artist(axes)
        return svg(figure, "a < b", style.COLOURS)


Box = tuple[float, float, float, float]


def texts(root: ElementTree.Element) -> Iterator[tuple[str, Box]]:
    """The texts and their positions."""
    for parent in root.iter():
        for text in parent.findall(f"{SVG}text"):
            look = parent if parent.tag == f"{SVG}g" else text
            yield text.text, box(text, look.get("class"), look.get("text-anchor"))


def box(text: ElementTree.Element, look: str, anchor: str | None) -> Box:
    """Left, top, right, bottom, if the reader's font is as wide as that of the layout."""
    size = float(re.search(r"size([\d-]+)", look)[1].replace("-", "."))
    weight = "bold" if "bold" in look.split() else "normal"
    font = FontProperties(family=style.SETTINGS["font.family"], size=size, weight=weight)
    width = text_to_path.get_text_width_height_descent(text.text, font, False)[0]
    left = -width * {None: 0, "middle": 0.5, "end": 1}[anchor]
    x, y = float(text.get("x")), float(text.get("y"))
    if "transform" in text.attrib:
        return x - 0.7 * size, y - left - width, x, y - left
    return x + left, y - 0.7 * size, x + left + width, y


class Svg(unittest.TestCase):
    def test_colours_are_classes_of_both_schemes(self) -> None:
        text = draw(lambda axes: axes.barh(36, 72, height=36, color=style.BLUE))
        light, dark = style.COLOURS["blue"]
        self.assertEqual((text.count(light), text.count(dark)), (1, 1))
        self.assertRegex(text, r"prefers-color-scheme:dark\)\{[^@]*\.blue\{color:" + dark)
        self.assertIn('<path class="fill blue" d="M0 54H72V18H0z"/>', text)
        # The background of the page, so that text is readable everywhere
        self.assertIn('<path class="fill page" d="M0 72H144V0H0z"/>', text)
        self.assertNotIn(".orange", text)

    def test_unknown_colours_are_refused(self) -> None:
        with self.assertRaises(KeyError):
            draw(lambda axes: axes.axhline(36, color="#123456"))

    def test_each_name_has_its_own_colour(self) -> None:
        self.assertEqual(len({light for light, _ in style.COLOURS.values()}), len(style.COLOURS))

    def test_text_becomes_escaped_text_elements(self) -> None:
        text = draw(lambda axes: axes.text(72, 36, "a & b", ha="right", color=style.QUIET, weight="bold"),
                    lambda axes: axes.text(10, 10, "up", rotation=90))
        self.assertIn("<title>a &lt; b</title>", text)
        self.assertIn('<text class="quiet size10 bold" text-anchor="end" x="72" y="36">a &amp; b</text>', text)
        self.assertIn(".size10{font-size:10px}", text)
        self.assertRegex(text, r'x="([\d.]+)" y="([\d.]+)" transform="rotate\(-90 \1 \2\)">up<')

    def test_bars_end_where_the_axes_end(self) -> None:
        text = draw(lambda axes: axes.barh(36, 500, height=36, color=style.BLUE),
                    lambda axes: axes.barh(36, 10, left=200, height=36, color=style.SKY))
        self.assertIn('d="M0 54H144V18H0z"', text)
        self.assertNotIn("fill sky", text)

    def test_adjacent_elements_are_merged(self) -> None:
        text = draw(lambda axes: axes.barh([10, 50], 72, height=10, color=style.BLUE),
                    lambda axes: axes.plot([0, 72], [0, 36], "o-", color=style.TEAL, markersize=4,
                                           markeredgewidth=0, linewidth=2))
        self.assertEqual(text.count("fill blue"), 1)
        texts = draw(*(lambda axes, y=y: axes.text(9, y, "a") for y in (9, 36)))
        self.assertIn('<g class="text size10">\n<text x="9" y="63">a</text>\n'
                      '<text x="9" y="36">a</text>\n</g>', texts)
        self.assertIn('<path class="line teal" stroke-width="2" d="M0 72L72 36"/>', text)
        self.assertIn('stroke-width="4" stroke-linecap="round" d="M0 72h0M72 36h0"/>', text)


class Drawn(unittest.TestCase):
    def test_charts_are_small_and_only_text_and_lines(self) -> None:
        files = sorted(DRAWN.iterdir())
        self.assertTrue(files)
        for path in files:
            self.assertEqual(path.suffix, ".svg")
            self.assertLess(path.stat().st_size, 20 << 10, path)
            names = {element.tag.removeprefix(SVG) for element in ElementTree.parse(path).iter()}
            self.assertLessEqual(names, {"svg", "title", "style", "path", "g", "text"}, path)
            self.assertNotRegex(path.read_text(), r"\bid=|nan|inf\b")

    def test_texts_are_inside_the_picture_and_do_not_overlap(self) -> None:
        for path in sorted(DRAWN.iterdir()):
            root = ElementTree.parse(path).getroot()
            width, height = map(float, root.get("viewBox").split()[2:])
            boxes = list(texts(root))
            self.assertTrue(boxes)
            for text, (left, top, right, bottom) in boxes:
                self.assertTrue(left >= 0 and top >= 0 and right <= width and bottom <= height,
                                f"{path.name}: {text} is cut off")
            for (one, a), (other, b) in itertools.combinations(boxes, 2):
                apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
                self.assertTrue(apart, f"{path.name}: {one} lies over {other}")


if __name__ == "__main__":
    unittest.main()
