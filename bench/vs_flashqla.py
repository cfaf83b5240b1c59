#!/usr/bin/env python3
"""Forge beside FlashQLA: Gated DeltaNet, forward and training, on one GPU, in one process, outputs compared.

    PYTHONPATH=FOLDER_WITH_FLASH_QLA python3 bench/vs_flashqla.py --csv flashqla.csv

Forward rows are the cases of bench/models.py with K = V = 128 (others FlashQLA does not take), by CUDA-graph replay;
training rows, forward and backward together, flash-linear-attention's own shapes of that size (bench/backward.py), by
eager calls between events. Medians in microseconds, the L2 cache overwritten before each. rel_err is rms(forge -
flashqla) / rms(flashqla) of the output, worst_grad the largest of the gradients'. FlashQLA's kernels are compiled
first, all shapes at once, in processes of their own: each takes 20 to 40 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

import backward
import models
import vs_fla

COLUMNS = ["case", "B", "T", "H", "HV", "flashqla_us", "forge_us", "ratio", "flashqla_peak_mib", "forge_peak_mib",
           "rel_err", "worst_grad", "error"]  # fmt: skip
OP = "gated_delta_rule"
FORWARD = {c[0]: c for c in models.CASES if c[1] == OP and c[6:] == (128, 128)}
TRAINING = {f"train_{s}": s for s in backward.SHAPES.split(",") if s.endswith("x128")}


def calls(x: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    import flash_qla

    forge = models.operator("forge", OP)
    return {
        "flashqla": lambda: flash_qla.chunk_gated_delta_rule(**x, **more)[0],
        "forge": lambda: forge(**x, **more)[0],
    }


def error_of(found: Any, wanted: Any) -> float:
    wanted = wanted.float()
    return ((found.float() - wanted).square().mean() / wanted.square().mean()).sqrt().item()


def measure_forward(row: dict[str, Any], run: dict[str, Any], args: Any, torch: Any) -> None:
    outputs = {}
    with torch.no_grad():
        for side, call in run.items():
            outputs[side] = call()
            if not args.compile:
                row[f"{side}_us"] = vs_fla.graph_us(call, args.runs, torch)
    row["rel_err"] = error_of(outputs["forge"], outputs["flashqla"])


def measure_training(row: dict[str, Any], x: dict[str, Any], run: dict[str, Any], args: Any, torch: Any) -> None:
    do, gradients = torch.randn_like(x["v"]), {}
    for side, call in run.items():
        step = backward.Step(call, x, do)
        gradients[side] = step.gradients()
        if not args.compile:
            row[f"{side}_us"] = backward.median_us(step, args.runs, torch)
            row[f"{side}_peak_mib"] = backward.peak_mib(step, torch)
    row["worst_grad"] = max(error_of(gradients["forge"][n], gradients["flashqla"][n]) for n in x)


def row_of(case: str, args: Any, torch: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case}
    try:
        if case in FORWARD:
            x, more = models.inputs_of(FORWARD[case], torch)
            row |= dict(zip(("B", "T", "H", "HV"), FORWARD[case][2:]))
            measure_forward(row, calls(x, more), args, torch)
        else:
            B, T, H, D = (int(n) for n in TRAINING[case].split("x"))
            row |= {"B": B, "T": T, "H": H, "HV": H}
            x = {n: t.requires_grad_() for n, t in vs_fla.inputs_of("gdn", T, torch, B, H, D).items()}
            measure_training(row, x, calls(x, {}), args, torch)
        if "flashqla_us" in row and "forge_us" in row:
            row["ratio"] = row["flashqla_us"] / row["forge_us"]
    except Exception as error:  # noqa: BLE001
        row["error"] = repr(error).replace("\n", " ")[:300]
    torch.cuda.empty_cache()
    return row


def compile_all(cases: list[str], jobs: int) -> None:
    """Both sides' kernels, into their caches."""
    command = [sys.executable, __file__, "--compile", "--cases"]
    batches = [cases[i::jobs] for i in range(min(jobs, len(cases)))]
    for process in [subprocess.Popen([*command, ",".join(b)], stdout=subprocess.DEVNULL) for b in batches]:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join([*FORWARD, *TRAINING]), help="names, separated by commas")
    parser.add_argument("--csv", default="flashqla.csv")
    parser.add_argument("--runs", type=int, default=15, help="replays or calls")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile; 0: none")
    parser.add_argument("--compile", action="store_true", help="fills caches and measures nothing")
    args = parser.parse_args()
    cases = args.cases.split(",")
    import torch

    if args.compile:
        for case in cases:
            print(row_of(case, args, torch).get("error", ""), file=sys.stderr)
        return
    if args.jobs:
        compile_all(cases, args.jobs)
    with open(args.csv, "w", encoding="utf-8") as csv:
        for line in [*vs_fla.header()[:3], ",".join(COLUMNS)]:
            print(line, file=csv, flush=True)
            print(line, flush=True)
        for case in cases:
            row = row_of(case, args, torch)
            line = ",".join(vs_fla.shown(row.get(column)) for column in COLUMNS)
            print(line, file=csv, flush=True)
            print(line, flush=True)


if __name__ == "__main__":
    main()
