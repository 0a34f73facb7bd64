"""Draw each figure once more for a narrow window, from the drawing itself; lines of names do not cross.

A figure is as wide as the text, so on a phone its letters would be seven pixels high. Beside each
drawing that Matplotlib made stands a second one, as wide as a phone: axes are narrower, letters and
marks keep their size, long texts are broken into lines, and keys stand below the plot.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
from PIL import ImageFont
from sphinx.application import Sphinx

WIDTH = 362.0  # of the narrow drawing, CSS pixels
_LEAST = 10.0  # letters, px
_LINE = 1.25  # from one line to the next, of the size of its letters
_MARGIN = 4.0
_BESIDE = 2.9  # from a mark of a key to its words, of the size of their letters
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_PAIR = re.compile(r"(-?[\d.]+(?:e-?\d+)?) (-?[\d.]+(?:e-?\d+)?)")
_NUMBERS = re.compile(r"-?[\d.]+(?:e-?\d+)?")
ET.register_namespace("", _SVG)
ET.register_namespace("xlink", _XLINK)


@cache
def _font() -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(path), 100, layout_engine=ImageFont.Layout.BASIC)


def measure(text: str, size: float) -> float:
    """Measure how wide a text is, px."""
    return _font().getlength(text) * size / 100


def wrap(text: str, size: float, room: float) -> list[str]:
    """Break a text between words into lines that fit.

    Examples
    --------
    >>> wrap("median and interval", 10, 70)
    ['median and', 'interval']
    """
    lines: list[str] = []
    for word in text.split():
        if lines and measure(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@dataclass
class Stretch:
    """A map of one coordinate that is linear between knots."""

    knots: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self, value: float) -> float:
        """Map a place; beyond the last knots places keep their distance."""
        (first, to), (last, end) = self.knots[0], self.knots[-1]
        if value <= first:
            return to + value - first
        for (a, p), (b, q) in pairwise(self.knots):
            if value <= b:
                return q if b == a else p + (value - a) * (q - p) / (b - a)
        return end + value - last


@dataclass
class Text:
    """A text of a drawing, with where it stands."""

    tag: ET.Element
    words: str
    size: float
    x: float
    y: float
    anchor: str  # start, middle or end
    angle: float
    is_tick: bool

    @property
    def width(self) -> float:
        """Width of its letters, px."""
        return measure(self.words, self.size)

    @property
    def ends(self) -> tuple[float, float]:
        """Left and right end of what is seen of it."""
        if self.angle:
            return self.x - self.size, self.x + self.size / 3
        left = self.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * self.width
        return left, left + self.width


def _name(tag: ET.Element) -> str:
    return tag.tag.rpartition("}")[2]


def _style(tag: ET.Element) -> dict[str, str]:
    parts = (part.partition(":") for part in tag.get("style", "").split(";") if ":" in part)
    return {key.strip(): value.strip() for key, _, value in parts}


def _set_style(tag: ET.Element, **given: str) -> None:
    style = _style(tag) | {name.replace("_", "-"): value for name, value in given.items()}
    tag.set("style", "; ".join(f"{name}: {value}" for name, value in style.items()))


def _read_texts(group: ET.Element, *, is_tick: bool = False) -> Iterator[Text]:
    """Read texts in the order in which they are drawn, those of keys left out."""
    for child in group:
        name = child.get("id", "")
        if name.startswith("legend_"):
            continue
        if _name(child) == "text":
            yield _read_text(child, is_tick)
        else:
            yield from _read_texts(child, is_tick=is_tick or name.startswith(("xtick", "ytick")))


def _read_text(tag: ET.Element, is_tick: bool) -> Text:
    """Read a text and make its letters no smaller than can be read; it stands at x and y then."""
    spans = list(tag)
    if (size := _style(tag).get("font-size")) and not spans:
        _set_style(tag, font_size=f"{max(_LEAST, float(size.removesuffix('px'))):g}px")
    style = _style(tag)
    height = float(style.get("font-size", "11px").removesuffix("px"))
    moved = tag.get("transform", "")
    angle = -90.0 if "rotate(-90" in moved else 0.0
    numbers = [float(one) for one in _NUMBERS.findall(moved.partition("(")[2])]
    x, y = float(tag.get("x", "nan")), float(tag.get("y", "nan"))
    if math.isnan(x):  # a formula stands where it was moved to
        x, y = numbers[0], numbers[1]
    words = "".join(tag.itertext()).strip()
    anchor = style.get("text-anchor", "start")
    if spans and is_tick:  # its parts stand beside each other; only its middle is known
        anchor, x = "middle", x + measure(words, 0.8 * height) / 2
    return Text(tag, " ".join(words.split()), height, x, y, anchor, angle, is_tick)


def _unnest(root: ET.Element) -> None:
    """Write texts that are moved by a group around them like all others."""
    for group in root.iter(f"{{{_SVG}}}g"):
        match = re.match(r"translate\((\S+) (\S+)\)(?: rotate\((\S+)\))?", group.get("transform", ""))  # fmt: skip
        if match:
            del group.attrib["transform"]
            style = _style(group)
            for tag in group.iter(f"{{{_SVG}}}text"):
                tag.set("transform", match[0])
                tag.attrib.pop("x", None), tag.attrib.pop("y", None)
                _set_style(tag, **{key.replace("-", "_"): text for key, text in style.items()})


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _read_boxes(root: ET.Element) -> list[Box]:
    """Read where the axes are."""
    boxes = []
    for group in root.iter(f"{{{_SVG}}}g"):
        if group.get("id", "").startswith("axes_"):
            pairs = _PAIR.findall(next(group.iter(f"{{{_SVG}}}path")).get("d", ""))
            x, y = ([float(pair[i]) for pair in pairs] for i in (0, 1))
            boxes.append((min(x), min(y), max(x), max(y)))
    return boxes


def _join(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join spans that overlap, from left to right."""
    joined: list[tuple[float, float]] = []
    for low, high in sorted(spans):
        if joined and low < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def _narrow_columns(boxes: list[Box], texts: list[Text]) -> Stretch:
    """Map x so that texts beside the axes keep their room and the axes share what is left."""
    columns = _join([(left, right) for left, _, right, _ in boxes])
    gaps = [_MARGIN]
    gaps += [min(10.0, b - a) for (_, a), (b, _) in pairwise(columns)]
    gaps += [_MARGIN]
    beyond = [[0.0, 0.0] for _ in columns]  # how far numbers below axes reach out at each side
    for text in texts:
        low, high = text.ends
        for i, (left, right) in enumerate(columns):
            before = columns[i - 1][1] if i else -math.inf
            after = columns[i + 1][0] if i + 1 < len(columns) else math.inf
            if text.angle or text.anchor == "end":
                if before < text.x <= left:
                    gaps[i] = max(gaps[i], left - low + _MARGIN)
            elif text.anchor == "start" and right <= text.x < after:
                gaps[i + 1] = max(gaps[i + 1], high - right + _MARGIN)
            elif text.anchor == "middle" and text.is_tick and left <= text.x <= right:
                beyond[i] = [max(beyond[i][0], left - low), max(beyond[i][1], high - right)]
    ends = [[0.0, 0.0], *beyond, [0.0, 0.0]]
    for i, ((_, before), (after, _)) in enumerate(pairwise(ends)):
        gaps[i] = max(gaps[i], min(before + after + (6.0 if before and after else 0.0), 48.0))
    values = [one for one in texts if one.anchor == "start" and not _is_above(one, boxes)]
    for _ in range(4):  # until values beside marks stay inside too
        move = _share_out(gaps, columns)
        over = [move(one.x) + one.width + 2 - WIDTH for one in values]
        over += [move(one.x) + one.width / 2 - WIDTH for one in texts if one.is_tick and one.anchor == "middle"]  # fmt: skip
        gaps[-1] += max(0.0, *over) if over else 0.0
    return _share_out(gaps, columns)


def _share_out(gaps: list[float], columns: list[tuple[float, float]]) -> Stretch:
    """Give columns what gaps leave of the width, each as much of its own."""
    share = (WIDTH - sum(gaps)) / sum(right - left for left, right in columns)
    knots, at = [], 0.0
    for gap, (left, right) in zip(gaps, columns, strict=False):
        at += gap
        knots += [(left, at), (right, at + share * (right - left))]
        at = knots[-1][1]
    return Stretch(knots)


def _is_above(text: Text, boxes: list[Box]) -> bool:
    """Tell whether a text stands over all axes of its column, as a title does."""
    return not any(box[1] < text.y and box[0] - 1 <= text.x <= box[2] + 1 for box in boxes)


def _break_long(texts: list[Text], boxes: list[Box], move: Stretch) -> list[tuple[float, float]]:
    """Break texts that no longer fit; return at which heights how much room is needed for lines."""
    needed: dict[float, float] = {}
    columns = _join([(left, right) for left, _, right, _ in boxes])
    for text in texts:
        inside = [i for i, (a, b) in enumerate(columns) if a - 1 <= text.x <= b + 1]
        if text.is_tick or text.angle or text.anchor == "end" or len(text.tag) or not inside:
            continue
        left, right = (move(place) for place in columns[inside[0]])
        ends = [move(a) for a, _ in columns[inside[0] + 1 :]] or [WIDTH]
        is_above = _is_above(text, boxes)
        if text.anchor == "middle":
            room = WIDTH - 2 * _MARGIN if len(columns) == 1 else right - left + 6
        else:
            at = move(text.x)
            if is_above and len(columns) == 1 and at + text.width > WIDTH:
                at = _MARGIN
                text.tag.set("data-left", f"{at}")
            room = ends[0] - _MARGIN - at
        lines = wrap(text.words, text.size, room)
        if len(lines) < 2:
            continue
        text.tag.set("data-lines", "\n".join(lines))
        text.tag.set("data-rises", "yes" if is_above else "")
        place = text.y - text.size if is_above else text.y + 2
        needed[place] = max(needed.get(place, 0.0), (len(lines) - 1) * _LINE * text.size)
    return sorted(needed.items())


def _thin_ticks(texts: list[Text], move: Stretch) -> None:
    """Leave out numbers along an axis that would touch."""
    rows: dict[float, list[Text]] = {}
    for text in texts:
        if text.is_tick and text.anchor == "middle":
            rows.setdefault(round(text.y), []).append(text)
    for row in rows.values():
        row.sort(key=lambda text: text.x)
        ends = -math.inf
        for text in row:
            at, half = move(text.x), text.width / 2
            if at - half < ends + 3:
                text.tag.set("display", "none")
            else:
                ends = at + half


def _map_path(d: str, to: Callable[[float, float], tuple[float, float]]) -> str:
    def place(match: re.Match[str]) -> str:
        x, y = to(float(match[1]), float(match[2]))
        return f"{x:.2f} {y:.2f}"

    return _PAIR.sub(place, d)


def _place(root: ET.Element, x: Stretch, y: Stretch) -> None:
    """Move lines, areas and marks; a mark keeps its shape."""
    absolute = {}  # shapes that are drawn where they lie: at x 0, and so far down
    for use in root.iter(f"{{{_SVG}}}use"):
        if float(use.get("x", 0)) == 0:
            absolute[use.get(f"{{{_XLINK}}}href", "")[1:]] = float(use.get("y", 0))
    for tag in root.iter():
        if _name(tag) == "use" and float(tag.get("x", 0)) != 0:
            tag.set("x", f"{x(float(tag.get('x', 0))):.2f}")
            tag.set("y", f"{y(float(tag.get('y', 0))):.2f}")
        elif _name(tag) == "rect":
            left, top = float(tag.get("x", 0)), float(tag.get("y", 0))
            right, low = left + float(tag.get("width", 0)), top + float(tag.get("height", 0))
            given = {
                "x": x(left),
                "y": y(top),
                "width": x(right) - x(left),
                "height": y(low) - y(top),
            }
            for key, value in given.items():
                tag.set(key, f"{value:.2f}")
        elif _name(tag) == "path":
            name = tag.get("id", "")
            if not name or name in absolute:
                down = absolute.get(name, 0.0)
                tag.set("d", _map_path(tag.get("d", ""), lambda a, b, d=down: (x(a), y(b + d) - d)))  # type: ignore[misc]


def _write_text(text: Text, x: Stretch, y: Stretch) -> None:
    """Write a text at its new place, in its lines."""
    tag, at, down = text.tag, x(text.x), y(text.y)
    lines = tag.attrib.pop("data-lines", text.words).split("\n")
    at, rises = float(tag.attrib.pop("data-left", at)), tag.attrib.pop("data-rises", "")
    if not text.angle and not len(tag):
        half = max(measure(line, text.size) for line in lines) / 2
        if text.anchor == "middle":
            at = min(max(at, half + 1), WIDTH - half - 1)
    _set_style(tag, text_anchor=text.anchor)
    if len(tag):
        tag.set("transform", f"translate({at:.2f} {down:.2f})" + (f" rotate({text.angle:g})" if text.angle else ""))  # fmt: skip
        return
    tag.set("x", f"{at:.2f}")
    tag.set("y", f"{down:.2f}")
    tag.set("transform", f"rotate({text.angle:g} {at:.2f} {down:.2f})")
    if len(lines) > 1:
        tag.text = ""
        rise = (len(lines) - 1) * _LINE * text.size if rises else 0.0
        for i, line in enumerate(lines):
            span = ET.SubElement(tag, f"{{{_SVG}}}tspan", x=f"{at:.2f}")
            span.set("y", f"{down - rise + i * _LINE * text.size:.2f}")
            span.text = line


def _read_keys(root: ET.Element) -> Iterator[list[tuple[list[ET.Element], Text]]]:
    """Take the keys out of a drawing: of each, its marks and words."""
    for parent in list(root.iter()):
        for legend in [one for one in parent if one.get("id", "").startswith("legend_")]:
            parent.remove(legend)
            entries, marks = [], []
            for child in legend:
                texts = list(child.iter(f"{{{_SVG}}}text"))
                if texts:
                    entries.append((marks, _read_text(texts[0], False)))
                    marks = []
                elif not child.get("id", "").startswith("patch_") or len(child) != 1 or marks or entries:  # fmt: skip
                    marks.append(child)
            yield entries


def _write_keys(root: ET.Element, below: float) -> float:
    """Write the keys below the plot, in columns; return how far down the drawing reaches."""
    figure = next(one for one in root.iter(f"{{{_SVG}}}g") if one.get("id") == "figure_1")
    for entries in _read_keys(root):
        below += 6
        widest = max(text.width + _BESIDE * text.size for _, text in entries) + 8
        n_columns = max(1, int((WIDTH - 2 * _MARGIN) // widest))
        place = 0
        for marks, text in entries:
            if not marks:  # what the key is about
                place = -(-place // n_columns) * n_columns
            row, column = divmod(place, n_columns)
            left, down = _MARGIN + column * widest, below + (row + 1) * 1.5 * text.size
            group = ET.SubElement(figure, f"{{{_SVG}}}g")
            gap = _BESIDE * text.size if marks else 0.0
            group.set("transform", f"translate({left + gap - text.x:.2f} {down - text.y:.2f})")
            group.extend([*marks, text.tag])
            place += 1 if marks else n_columns
        below += -(-place // n_columns) * 1.5 * entries[0][1].size
    return below


@dataclass
class Leader:
    """A line from a name beside the axes to its point."""

    path: ET.Element
    text: ET.Element
    point: tuple[float, float]
    y: float  # of the name

    @property
    def start(self) -> tuple[float, float]:
        """Where the line leaves the name: before its letters, at half their height."""
        size = float(_style(self.text).get("font-size", "11px").removesuffix("px"))
        return float(self.text.get("x", 0)) - 3, self.y - 0.35 * size

    def crosses(self, other: Leader) -> bool:
        """Tell whether two lines cross, ends apart."""
        (a, b), (c, d) = (self.start, self.point), (other.start, other.point)

        def side(u: tuple[float, float], v: tuple[float, float], w: tuple[float, float]) -> float:
            return (v[0] - u[0]) * (w[1] - u[1]) - (v[1] - u[1]) * (w[0] - u[0])

        return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def _read_leaders(axes: ET.Element, right: float) -> Iterator[Leader]:
    """Read the lines of names at the right of axes: each is drawn before its name."""
    for group, named in pairwise(axes):
        path, text = group.find(f"{{{_SVG}}}path"), named.find(f"{{{_SVG}}}text")
        if path is None or text is None or len(text) or float(text.get("x", 0)) <= right:
            continue
        pairs = _PAIR.findall(path.get("d", ""))
        if _style(path).get("fill") == "none" and len(pairs) in (2, 3):
            x, y = pairs[-1]
            yield Leader(path, text, (float(x), float(y)), float(text.get("y", 0)))


def uncross(root: ET.Element, boxes: list[Box]) -> bool:
    """Let names change places until no two of their lines cross; tell whether any did.

    Each change makes the lines shorter in sum, so this ends.
    """
    groups = [one for one in root.iter(f"{{{_SVG}}}g") if one.get("id", "").startswith("axes_")]
    is_changed = False
    for axes, box in zip(groups, boxes, strict=True):
        leaders = list(_read_leaders(axes, box[2]))
        pairs = list(combinations(leaders, 2))
        while crossed := next((pair for pair in pairs if pair[0].crosses(pair[1])), None):
            crossed[0].y, crossed[1].y = crossed[1].y, crossed[0].y
            is_changed = True
        for one in leaders if is_changed else []:
            (x, y), (px, py) = one.start, one.point
            one.path.set("d", f"M {x:.2f} {y:.2f} L {px:.2f} {py:.2f}")
            one.text.set("y", f"{one.y:.2f}")
            one.text.attrib.pop("transform", None)
    return is_changed


def uncross_figure(svg: str) -> str:
    """Write a figure whose lines of names do not cross; one in which none do stays as it is."""
    head, root = svg[: svg.index("<svg")], ET.fromstring(svg[svg.index("<svg") :])  # noqa: S314 - drawn by the book itself
    return head + ET.tostring(root, encoding="unicode") if uncross(root, _read_boxes(root)) else svg


def narrow(svg: str) -> str:
    """Draw a figure of Matplotlib anew for a narrow window; empty if it is none."""
    root = ET.fromstring(svg[svg.index("<svg") :])  # noqa: S314 - drawn by the book itself
    boxes = _read_boxes(root)
    if not boxes:
        return ""
    _unnest(root)
    texts = [text for text in _read_texts(root) if text.words]
    x = _narrow_columns(boxes, texts)
    _thin_ticks(texts, x)
    needed = _break_long(texts, boxes, x)
    y, shift = Stretch([(0.0, 0.0)]), 0.0
    for at, room in needed:
        y.knots += [(at, at + shift), (at + 0.01, at + shift + room)]
        shift += room
    height = float(root.get("viewBox", "0 0 0 0").split()[3])
    keys = [one for one in root.iter() if one.get("id", "").startswith("legend_")]
    kept = [list(key) for key in keys]
    for key in keys:
        key[:] = []
    page = next(root.iter(f"{{{_SVG}}}path"))
    _place(root, x, y)
    for text in texts:
        _write_text(text, x, y)
    uncross(root, _read_boxes(root))
    for key, children in zip(keys, kept, strict=True):
        key[:] = children
    end = _write_keys(root, y(height)) + 4
    page.set("d", f"M 0 0 L {WIDTH} 0 L {WIDTH} {end:.2f} L 0 {end:.2f} z")
    for name, value in {"width": WIDTH, "height": end}.items():
        root.set(name, f"{value:.2f}")
    root.set("viewBox", f"0 0 {WIDTH:g} {end:.2f}")
    return ET.tostring(root, encoding="unicode")


_FIGURE = re.compile(r'<img alt="[^"]*" src="([^"]*)\.svg"[^>]*/>')


def show_narrow(page: Path) -> None:
    """Let a page show the narrow drawings where its window is narrow."""

    def choose(match: re.Match[str]) -> str:
        source = page.parent / f"{match[1]}.svg"
        target = source.with_name(f"{source.stem}-phone.svg")
        if not target.exists():
            if not source.exists() or not (drawn := narrow(source.read_text("utf-8"))):
                return match[0]
            target.write_text(drawn, encoding="utf-8")
        return f'<picture><source media="(max-width: 40rem)" srcset="{match[1]}-phone.svg" />{match[0]}</picture>'

    page.write_text(_FIGURE.sub(choose, page.read_text("utf-8")), encoding="utf-8")


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Draw the figures of a build that went well."""
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir, "_images").glob("*.svg"):
            path.write_text(uncross_figure(path.read_text("utf-8")), encoding="utf-8")
        for path in Path(app.outdir).rglob("*.html"):
            if "_static" not in path.parts:
                show_narrow(path)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after the pages are tidied, which makes figures links."""
    app.connect("build-finished", finish, priority=920)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
