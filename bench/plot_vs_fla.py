#!/usr/bin/env python3
"""Draws what bench/vs_fla.py measured: time over the memory floor by sequence length, a panel per operator, for Forge
and its peer.

    python3 bench/plot_vs_fla.py bench/results/2026-11-22-h200-vs-fla.csv docs/vs_fla.svg

The vertical axis is (measured GPU time) / (inputs read once and outputs written once, at the bandwidth that the CSV was
made with); 1 would be the floor. A panel's title has the geometric mean of peer / Forge over its lengths. Standard
library only.
"""

from __future__ import annotations

import csv
import math
import sys

COLUMNS, WIDTH, HEIGHT, LEFT, TOP, GAP = 4, 210, 150, 44, 44, 62
COLOURS = {"fla": "#8a94a6", "forge": "#d9541e"}


def panels_of(path: str) -> dict[str, list[dict]]:
    """Rows by operator, in order of length."""
    with open(path, encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(line for line in file if not line.startswith("#")) if r["ratio"]]
    panels: dict[str, list[dict]] = {}
    for r in sorted(rows, key=lambda r: int(r["T"])):
        panels.setdefault(r["op"], []).append(r)
    return dict(sorted(panels.items()))


def length(tokens: str) -> str:
    return f"{int(tokens) // 1024}K"


def text(x: float, y: float, what: str, anchor: str = "middle", size: int = 10) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{what}</text>'


def panel(op: str, rows: list[dict], x0: float, y0: float) -> list[str]:
    over_floor = {who: [float(r[f"{who}_graph_us"]) / float(r["floor_us"]) for r in rows] for who in COLOURS}
    most = max(max(o) for o in over_floor.values())
    ratio = math.exp(sum(math.log(float(r["ratio"])) for r in rows) / len(rows))

    def place(i: int, value: float) -> tuple[float, float]:
        return x0 + WIDTH * (i + 0.5) / len(rows), y0 + HEIGHT * (1 - value / most)

    out = [text(x0 + WIDTH / 2, y0 - 8, f"{op}: {ratio:.2f} times as fast", size=12)]
    for tick in range(0, int(most) + 1, max(1, int(most) // 5)):
        y = place(0, tick)[1]
        out += [
            f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>',
            text(x0 - 5, y + 4, str(tick), "end"),
        ]
    for who, colour in COLOURS.items():
        points = [place(i, value) for i, value in enumerate(over_floor[who])]
        out.append(
            f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    out += [text(place(i, 0)[0], y0 + HEIGHT + 14, length(r["T"])) for i, r in enumerate(rows)]
    return out


def draw(panels: dict[str, list[dict]]) -> str:
    lines = (len(panels) + COLUMNS - 1) // COLUMNS
    width, height = COLUMNS * (LEFT + WIDTH) + 20, TOP + lines * (HEIGHT + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="10">'
    ]
    out.append(
        text(
            LEFT,
            16,
            "GPU time over the memory floor by tokens (lower is better): grey flash-linear-attention, orange Forge",
            "start",
            13,
        )
    )
    for n, (op, rows) in enumerate(panels.items()):
        out += panel(op, rows, LEFT + n % COLUMNS * (LEFT + WIDTH), TOP + 12 + n // COLUMNS * (HEIGHT + GAP))
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(panels_of(sys.argv[1])))
