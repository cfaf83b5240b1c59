#!/usr/bin/env python3
"""Sizes, types and batches beside the benchmark's shape, Forge alone, forward, on one GPU.

    python3 bench/sizes.py --csv sizes.csv

That shape is B=1 T=32768 H=32 K=V=128 in bfloat16. Per row the median microseconds of CUDA-graph replays with a cold L2
cache, and `ratio`, over those of the benchmark's shape. Outputs are compared with another way to the same numbers,
`rel_err` rms(difference) / rms: a head size of less than 128 with the call of 128 whose further columns are zeros,
float32 with the same values in bfloat16, a batch with its last sequence alone.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys

import vs_fla

T, H, D = 32768, 32, 128
COLUMNS = ["op", "shape", "dtype", "us", "ratio", "rel_err", "engine", "strategy", "error"]
#: B, T, D, dtype
SHAPES = [
    (1, T, D, "bf16"), (1, T, 96, "bf16"), (1, T, 80, "bf16"), (1, T, 100, "bf16"), (1, T, 64, "bf16"),
    (1, T, D, "f32"), (4, T // 4, D, "bf16"), (32, T // 32, D, "bf16"),
]  # fmt: skip


def widened(name: str, t, D_wide: int, torch):
    """An input for heads of `D_wide`: columns of zeros more, which change no output (gates of 0 keep a state of 0)."""
    return t if name == "beta" or t.dim() < 4 else torch.nn.functional.pad(t, (0, D_wide - t.shape[-1]))


def other_way(op: str, x: dict, shape: tuple, torch):
    """The same outputs, or a part of them, by another call; and how to take that part of the first call's."""
    B, _, width, dtype = shape
    if dtype == "f32":
        narrow = {n: t if n == "g" else t.bfloat16() for n, t in x.items()}
        return narrow, lambda o: o
    if B > 1:
        return {n: t[-1:].contiguous() for n, t in x.items()}, lambda o: o[-1:]
    return {n: widened(n, t, D, torch) for n, t in x.items()}, lambda o: o


def call_of(op: str, x: dict, scale: float):
    from forge import ops

    more = {"normalize": False} if op == "linear" else {}
    run = getattr(ops, vs_fla.FORGE[op][0])
    return lambda: run(**x, scale=scale, **more)[0]


def row_of(op: str, shape: tuple, args, torch) -> dict:
    B, length, width, dtype = shape
    row = {"op": op, "shape": f"{B}x{length}x{H}x{width}", "dtype": dtype}
    try:
        x = vs_fla.inputs_of(op, length, torch, B, H, width)
        if dtype == "f32":
            x = {n: t.float() for n, t in x.items()}
        from forge.ops._programs import program

        run = call_of(op, x, width**-0.5)
        o = run()
        info = program(vs_fla.FORGE[op][1]).info
        row.update(engine=info["engine"], strategy=info["strategy"])
        row["us"] = vs_fla.graph_us(run, args.runs, torch)
        if shape != SHAPES[0]:
            y, part = other_way(op, x, shape, torch)
            wanted = call_of(op, y, width**-0.5)()[..., :width].float()
            row["rel_err"] = ((part(o).float() - wanted).square().mean() / wanted.square().mean()).sqrt().item()
    except Exception as error:  # noqa: BLE001
        row["error"] = repr(error).replace("\n", " ")[:300]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="linear,simple_gla,gla,delta,gdn,kda")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--csv", default="sizes.csv")
    args = parser.parse_args()
    sys.path.insert(0, str(vs_fla.ROOT / "python"))
    os.environ["FLA_DISABLE_BACKEND_DISPATCH"] = "1"
    import torch

    torch.set_grad_enabled(False)
    failed = 0
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        for line in vs_fla.header()[:2]:
            print(line, file=file)
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for op in args.ops.split(","):
            base = 0.0
            for shape in SHAPES:
                row = row_of(op, shape, args, torch)
                base = base or row.get("us", 0.0)
                if "us" in row and base:
                    row["ratio"] = row["us"] / base
                failed += bool(row.get("error"))
                values = [f"{v:.4g}" if isinstance(v := row.get(c, ""), float) else v for c in COLUMNS]
                rows.writerow(values)
                file.flush()
                print(*values, flush=True)
                torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
