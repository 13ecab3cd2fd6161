# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts are small, follow the colour scheme, and have no overlapping elements."""

import itertools
import re
import unittest
from collections.abc import Iterator
from xml.etree import ElementTree

from charts import style
from charts.__main__ import DRAWN
from charts.svg import svg
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

SVG = "{http://www.w3.org/2000/svg}"


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
    def test_unknown_colours_are_refused_and_texts_escaped(self) -> None:
        with rc_context(style.SETTINGS):
            figure = Figure(figsize=(2, 1))
            figure.text(0.5, 0.5, "a & b", color=style.QUIET)
            self.assertIn(">a &amp; b</text>", svg(figure, "title", style.COLOURS))
            figure.text(0.5, 0.5, "b", color="#123456")
            with self.assertRaises(KeyError):
                svg(figure, "title", style.COLOURS)
        self.assertEqual(len({light for light, _ in style.COLOURS.values()}), len(style.COLOURS))


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
