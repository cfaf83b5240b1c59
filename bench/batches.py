#!/usr/bin/env python3
"""Forge's forward pass where sequences and heads are many: batches, and short sequences, on one GPU.

    python3 bench/batches.py --csv after.csv
    FORGE_LIBRARY=OTHER/libforge.so python3 bench/batches.py --csv before.csv --against after.csv

Per row the median of CUDA-graph replays in microseconds, the L2 cache overwritten before each, inputs those of
bench/vs_fla.py; the floor is inputs read once and outputs written once at --bandwidth. `--against` adds another file's
times and the ratio of the two: commits are compared on one machine.
"""

from __future__ import annotations

import argparse
import csv

import vs_fla

OPS = "gdn,delta,simple_gla,linear"
#: (B, T, H): the longest batch is compared with one sequence of as many tokens.
SHAPES = "1x32768x32,4x8192x32,32x1024x32,8x2048x16,64x2048x16,1x8192x72,1x8192x96,1x8192x160,64x256x32,256x64x32"
D = 128
COLUMNS = ["op", "shape", "forge_us", "floor_us", "of_floor", "other_us", "other_over_forge", "schedule"]


def row_of(op: str, shape: str, args: argparse.Namespace, torch) -> dict:
    B, T, H = (int(n) for n in shape.split("x"))
    x = vs_fla.inputs_of(op, T, torch, B, H, D)
    call = vs_fla.ForgeCall(op, x, {})
    with torch.no_grad():
        o = call()
        us = vs_fla.graph_us(call, args.runs, torch)
    moved = sum(t.numel() * t.element_size() for t in [*x.values(), o])
    floor = moved / (args.bandwidth * 1e6)
    kernels = call.info["kernels"]
    return {"op": op, "shape": shape, "forge_us": us, "floor_us": floor, "of_floor": floor / us,
            "schedule": f"{call.info['strategy']} in {len(kernels)} kernels"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=OPS)
    parser.add_argument("--shapes", default=SHAPES, help="BxTxH, separated by commas")
    parser.add_argument("--csv", default="batches.csv")
    parser.add_argument("--against", help="a file of this program's: its times go to other_us")
    parser.add_argument("--runs", type=int, default=15, help="replays")
    parser.add_argument("--bandwidth", type=float, default=4.2, help="TB/s, for the floor (4.2: an H200's)")
    args = parser.parse_args()
    import torch

    other = {}
    if args.against:
        with open(args.against, encoding="utf-8") as file:
            rows = csv.DictReader(line for line in file if not line.startswith("#"))
            other = {(r["op"], r["shape"]): float(r["forge_us"]) for r in rows}
    with open(args.csv, "w", encoding="utf-8") as file:
        for line in [*vs_fla.header()[:3], ",".join(COLUMNS)]:
            print(line, file=file, flush=True)
        for shape in args.shapes.split(","):
            for op in args.ops.split(","):
                row = row_of(op, shape, args, torch)
                if (op, shape) in other:
                    row |= {"other_us": other[op, shape], "other_over_forge": other[op, shape] / row["forge_us"]}
                line = ",".join(vs_fla.shown(row.get(column)) for column in COLUMNS)
                print(line, file=file, flush=True)
                print(line, flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
