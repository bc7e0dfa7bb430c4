"""Draws `flow.svg` beside this file: what happens to a request, as if by hand.

python docs/draw_flow.py

The strokes wobble by a seeded generator, so the same code draws the same picture.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import cos, hypot, pi, sin
from pathlib import Path
from random import Random
from xml.sax.saxutils import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 1000, 650
PAPER, INK, GREY = "#fbf6e9", "#2b2d42", "#595d6e"
RED, BLUE, GREEN, SAND = "#c8442c", "#2a6f97", "#4b7f52", "#c79a3c"
FONTS = "'Comic Neue','Comic Sans MS','Chalkboard SE','Patrick Hand','Humor Sans',sans-serif"
TITLE = "How a request flows through btb"
DESCRIPTION = (
    "Logged traces and live requests become arrivals. An arrival goes into a prefix tree; from it "
    "comes a forecast of how many more requests share the prefix, made by models that learn from "
    "what then came. A policy takes the forecast and what it sees of the replicas, and decides "
    "where the request goes and which copies are made. A simulated cluster carries that out; real "
    "replication is not wired to it yet. The observed time to first token goes back to the policy."
)


class Pen:
    """Draws with an unsteady hand; `svg` is what has been drawn. All lengths are in pixels."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.svg: list[str] = []

    def stroke(
        self,
        points: Sequence[Point],
        colour: str = INK,
        width: float = 2.0,
        *,
        dashed: bool = False,
        fill: str = "none",
        shake: float = 1.1,
    ) -> None:
        """Draw a line through `points`, off by up to `shake`."""
        wobbly = [self._near(point, shake) for point in _dense(points)]
        dash = ' stroke-dasharray="7 6"' if dashed else ""
        self.svg.append(
            f'<path d="{_curve(wobbly)}" stroke="{colour}" stroke-width="{width:g}" '
            f'fill="{fill}"{dash}/>'
        )

    def box(
        self, x: float, y: float, w: float, h: float, tint: str = "", *, dashed: bool = False
    ) -> None:
        """Draw a box, hatched in `tint`; each side is a stroke that goes a little too far."""
        if tint:
            self.hatch(x, y, w, h, tint)
        corners = [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)]
        for (ax, ay), (bx, by) in pairwise(corners):
            over = min(0.06, 3.0 / hypot(bx - ax, by - ay))
            dx, dy = (bx - ax) * over, (by - ay) * over
            shake = min(1.1, 0.03 * (w + h))
            self.stroke([(ax - dx, ay - dy), (bx + dx, by + dy)], dashed=dashed, shake=shake)

    def hatch(self, x: float, y: float, w: float, h: float, colour: str, gap: float = 7.0) -> None:
        """Shade a rectangle with slanted lines."""
        offset = gap / 2
        while offset < w + h:
            start = (x + max(0.0, offset - h), y + min(offset, h))
            end = (x + min(offset, w), y + max(0.0, offset - w))
            self.svg.append(
                f'<path d="{_curve([self._near(start, 1.5), self._near(end, 1.5)])}" '
                f'stroke="{colour}" stroke-width="2.2" opacity="0.28" fill="none"/>'
            )
            offset += gap

    def ring(self, x: float, y: float, radius: float, colour: str = INK, fill: str = PAPER) -> None:
        """Draw a circle that doesn't quite meet its beginning."""
        steps = max(14, int(radius))
        turns = [2 * pi * step / steps - 1.2 for step in range(steps + 2)]
        circle = [(x + radius * cos(turn), y + radius * sin(turn)) for turn in turns]
        self.stroke(circle, colour, fill=fill, shake=min(1.1, 0.06 * radius))

    def arrow(
        self,
        points: Sequence[Point],
        colour: str = INK,
        width: float = 2.4,
        *,
        dashed: bool = False,
    ) -> None:
        """Draw a line through `points` with a head at its end."""
        self.stroke(points, colour, width, dashed=dashed)
        (ax, ay), (bx, by) = points[-2:]
        size = 11.0 / hypot(bx - ax, by - ay)
        dx, dy = (bx - ax) * size, (by - ay) * size
        for side in (0.55, -0.55):
            self.stroke([(bx - dx + side * dy, by - dy - side * dx), (bx, by)], colour, width)

    def write(
        self, x: float, y: float, text: str, size: int = 17, colour: str = INK, at: str = "middle"
    ) -> None:
        """Write `text` at a point; 22 and up is a title, in bold."""
        weight = ' font-weight="700"' if size >= 22 else ""
        self.svg.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" text-anchor="{at}"'
            f"{weight}>{escape(text)}</text>"
        )

    def _near(self, point: Point, most: float) -> Point:
        return (
            point[0] + self._rng.uniform(-most, most),
            point[1] + self._rng.uniform(-most, most),
        )


def _dense(points: Sequence[Point], step: float = 16.0) -> Iterator[Point]:
    """Yield `points` with more of them between, about `step` apart."""
    yield points[0]
    for (ax, ay), (bx, by) in pairwise(points):
        parts = max(1, round(hypot(bx - ax, by - ay) / step))
        for part in range(1, parts + 1):
            yield ax + (bx - ax) * part / parts, ay + (by - ay) * part / parts


def _curve(points: Sequence[Point]) -> str:
    """Return an SVG path that bends past `points`, from the first to the last."""
    (x, y), *rest = points
    path = f"M{x:.1f} {y:.1f}"
    for (ax, ay), (bx, by) in pairwise(rest):
        path += f"Q{ax:.1f} {ay:.1f} {(ax + bx) / 2:.1f} {(ay + by) / 2:.1f}"
    x, y = rest[-1]
    return f"{path}L{x:.1f} {y:.1f}"


def _inputs(pen: Pen) -> None:
    for shift in (16, 8, 0):
        x, y = 46 + shift, 44 + shift
        pen.svg.append(f'<rect x="{x}" y="{y}" width="76" height="76" fill="{PAPER}"/>')
        pen.box(x, y, 76, 76)
    for line, length in enumerate((58, 48, 60, 40, 54)):
        pen.stroke([(55, 58 + 13 * line), (55 + length, 58 + 13 * line)], BLUE)
    pen.write(96, 166, "logged traces", 22)
    pen.write(96, 187, "btb/traces/", 16, GREY)
    for row, start in enumerate((45, 73, 57)):
        pen.ring(start + 8, 231 + 22 * row, 7, GREEN)
        pen.arrow([(start + 20, 231 + 22 * row), (start + 76, 231 + 22 * row)], GREEN, 2)
    pen.write(96, 312, "live requests", 22)
    pen.write(96, 333, "btb/service/", 16, GREY)
    pen.arrow([(154, 96), (184, 104), (212, 132)])
    pen.arrow([(162, 250), (188, 238), (212, 212)])


def _arrival(pen: Pen) -> None:
    pen.box(222, 112, 160, 124)
    pen.write(302, 142, "arrival", 22)
    pen.write(302, 167, "time, lengths,")
    pen.write(302, 188, "chain of blocks:")
    for block in range(7):
        pen.box(237 + 19 * block, 202, 15, 17, RED if block < 5 else "")
    pen.write(302, 262, "forecasting/arrival.py", 16, GREY)
    pen.arrow([(392, 172), (440, 172)])


def _tree(pen: Pen) -> None:
    root, hot, leaf = (530.0, 76.0), (498.0, 134.0), 200.0
    for end in ((578.0, 130.0), (608.0, leaf)):
        pen.stroke([(578.0, 130.0) if end[1] == leaf else root, end])
    pen.stroke([(578, 130), (568, leaf)])
    pen.stroke([root, hot], RED, 6)
    for number in range(4):
        end = (460.0 + 25 * number, leaf)
        pen.stroke([hot, end], RED, 2.2)
        pen.ring(*end, 7, RED)
    for x, y in (root, (578.0, 130.0), (568.0, leaf), (608.0, leaf)):
        pen.ring(x, y, 8)
    pen.ring(*hot, 13, RED)
    pen.write(498, 140, "4", 18, RED)
    pen.write(534, 240, "prefix tree", 22)
    pen.write(534, 262, "forecasting/prefix.py", 16, GREY)
    pen.arrow([(626, 152), (668, 152)])


def _forecast(pen: Pen) -> None:
    left, floor = 684.0, 196.0
    pen.arrow([(left, floor), (left, 70)], width=2)
    pen.arrow([(left, floor), (836, floor)], width=2)
    for bar, height in enumerate((6, 10, 22, 38)):
        pen.box(694 + 14 * bar, floor - height, 9, height, BLUE)
    pen.stroke([(752, 76), (752, 202)], GREY, 1.6, dashed=True)
    pen.write(752, 68, "now", 16, GREY)
    fan = [(754.0, 158.0), (786.0, 116.0), (822.0, 82.0), (822.0, 150.0), (786.0, 146.0)]
    shape = " ".join(f"{x:g},{y:g}" for x, y in fan)
    pen.svg.append(f'<polygon points="{shape}" fill="{RED}" opacity="0.18"/>')
    pen.stroke([(754, 158), (786, 130), (824, 112)], RED, 3)
    pen.write(756, 228, "forecast", 22)
    pen.write(756, 250, "how many more")
    pen.write(756, 271, "in 1, 5, 15, 60 s")


def _models(pen: Pen) -> None:
    pen.box(892, 92, 92, 92, SAND)
    pen.write(938, 132, "models", 22)
    pen.write(938, 154, "models/", 16, GREY)
    pen.arrow([(884, 112), (838, 112)], SAND)
    pen.write(861, 100, "predict", 16)
    pen.arrow([(838, 166), (884, 166)], SAND)
    pen.write(861, 188, "learn", 16)
    pen.write(918, 228, "from what came", 16)
    pen.write(918, 248, "in that time", 16)


def _policy(pen: Pen) -> None:
    pen.arrow([(756, 286), (758, 334)])
    pen.stroke([(757, 352), (757, 470)], INK, 5)
    for row, (name, way) in enumerate((("r2", 1), ("r0", -1), ("r1", 1))):
        y = 362 + 30 * row
        tip, tail = 757 + way * 58, 757 - way * 26
        sign = [(tail, y), (tip - way * 12, y), (tip, y + 11), (tip - way * 12, y + 22), (tail, y)]
        sign.insert(4, (tail, y + 22))
        pen.stroke(sign, BLUE if row == 0 else INK, fill=PAPER)
        pen.write(757 + way * 14, y + 17, name, 17, BLUE if row == 0 else INK)
    pen.write(757, 496, "policy", 22)
    pen.write(757, 518, "least expected delay")
    pen.write(757, 539, "policies/", 16, GREY)
    pen.arrow([(688, 414), (640, 414)])


def _decision(pen: Pen) -> None:
    pen.box(492, 366, 138, 96, SAND)
    pen.write(504, 392, "route: r2, r0, r1", 16, at="start")
    pen.write(504, 418, "copy: r0 → r2", 16, at="start")
    pen.write(504, 444, "why: in words", 16, at="start")
    pen.write(561, 490, "decision", 22)
    pen.arrow([(484, 404), (436, 396)])
    pen.arrow([(484, 436), (458, 470), (436, 508)], dashed=True)


def _cluster(pen: Pen) -> None:
    for number, full in enumerate((62, 24, 50, 12)):
        x = 226 + 52 * number
        pen.box(x, 356, 40, 72)
        pen.hatch(x, 428 - full, 40, full, RED if number in (0, 2) else BLUE)
        pen.write(x + 20, 348, f"r{number}", 16)
    pen.arrow([(246, 392), (292, 378), (344, 392)], RED, 2.2)
    pen.write(322, 452, "simulated cluster", 22)
    pen.write(322, 473, "btb/simulation/", 16, GREY)
    pen.box(222, 500, 206, 86, dashed=True)
    pen.write(325, 526, "replication", 22, GREY)
    pen.write(325, 549, "replication/: real memory,", 16, GREY)
    pen.write(325, 571, "not wired to it yet", 16, RED)
    pen.arrow([(214, 398), (156, 412)])
    pen.arrow([(212, 532), (206, 476), (160, 446)], dashed=True)


def _feedback(pen: Pen) -> None:
    pen.ring(102, 424, 36)
    pen.box(96, 374, 12, 8)
    pen.stroke([(102, 424), (102, 398)], RED, 3)
    pen.stroke([(102, 424), (118, 432)], INK, 3)
    pen.write(102, 492, "observed TTFT", 22)
    pen.write(102, 514, "when the first", 16)
    pen.write(102, 534, "token came", 16)
    pen.arrow([(102, 548), (104, 618), (420, 622), (752, 618), (757, 552)], GREEN)
    pen.write(560, 610, "feedback: what the decision was worth", 17, GREEN)
    pen.arrow([(330, 326), (334, 308), (500, 304), (680, 312), (706, 350)], BLUE, 2, dashed=True)
    pen.write(508, 296, "what a policy sees: queues, caches, links", 17, BLUE)


def draw(seed: int = 7) -> str:
    """Return the picture as the text of an SVG file, with a paper of its own behind it."""
    pen = Pen(Random(seed))
    for part in (
        _inputs,
        _arrival,
        _tree,
        _forecast,
        _models,
        _policy,
        _decision,
        _cluster,
        _feedback,
    ):
        part(pen)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="title text" font-family="{FONTS}" stroke-linecap="round" '
        f'stroke-linejoin="round">'
    )
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="{PAPER}"/>'
    about = f'<title id="title">{TITLE}</title>\n<desc id="text">{DESCRIPTION}</desc>'
    return "\n".join([head, about, paper, *pen.svg, "</svg>\n"])


if __name__ == "__main__":
    Path(__file__).with_name("flow.svg").write_text(draw(), encoding="utf-8")
