#!/usr/bin/env python3
"""Draws what bench/vs_fla.py measured: time over the memory floor, per operator and length, for Forge and its peer.

    python3 bench/plot_vs_fla.py bench/results/2026-11-21-h200-vs-fla.csv docs/vs_fla.svg

Bars are (measured time) / (inputs read once and outputs written once, at the bandwidth that the CSV was made with); 1 would be
the floor. The number above a pair is peer / Forge. Standard library only.
"""

from __future__ import annotations

import csv
import sys

BAR, GAP, HEIGHT, TOP, LEFT = 16, 26, 260, 40, 56
COLOURS = {"fla": "#b0b7c3", "forge": "#d9541e"}


def rows_of(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return sorted((r for r in rows if r["ratio"]), key=lambda r: (int(r["T"]), r["op"]))


def draw(rows: list[dict]) -> str:
    over_floor = [{who: float(r[f"{who}_graph_us"]) / float(r["floor_us"]) for who in COLOURS} for r in rows]
    most = max(max(o.values()) for o in over_floor)
    width = LEFT + len(rows) * (2 * BAR + GAP) + GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 60}" font-family="sans-serif" font-size="11">']
    out.append(f'<text x="{LEFT}" y="16" font-size="13">GPU time over the memory floor (lower is better): grey flash-linear-attention, orange Forge</text>')
    for tick in (1, *range(2, int(most) + 1, 2)):
        y = TOP + HEIGHT * (1 - tick / most)
        out.append(f'<line x1="{LEFT}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/><text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    for i, (r, o) in enumerate(zip(rows, over_floor)):
        x = LEFT + GAP + i * (2 * BAR + GAP)
        for k, (who, colour) in enumerate(COLOURS.items()):
            h = HEIGHT * o[who] / most
            out.append(f'<rect x="{x + k * BAR}" y="{TOP + HEIGHT - h:.1f}" width="{BAR - 1}" height="{h:.1f}" fill="{colour}"/>')
        y = TOP + HEIGHT * (1 - max(o.values()) / most) - 5
        out.append(f'<text x="{x + BAR}" y="{y:.1f}" text-anchor="middle">{float(r["ratio"]):.2f}</text>')
        out.append(f'<text x="{x + BAR}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{r["op"]}</text>')
        out.append(f'<text x="{x + BAR}" y="{TOP + HEIGHT + 30}" text-anchor="middle" fill="#777">T={r["T"]}</text>')
    return "\n".join([*out, "</svg>\n"])


if __name__ == "__main__":
    source, target = sys.argv[1:]
    with open(target, "w", encoding="utf-8") as file:
        file.write(draw(rows_of(source)))
