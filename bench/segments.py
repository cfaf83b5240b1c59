#!/usr/bin/env python3
"""Delta rules in one pass and in segments, by numbers of heads, tokens and segments, on one GPU.

    python3 bench/segments.py --csv segments.csv
    python3 bench/segments.py --variants gated_delta_net --heads 4,8 --tokens 32768 --kernels

Keys are unit and correlated (cosine of about 0.2), rates sigmoid(randn), bf16, K = V = 128. Gates: `models`, as in
bench/models.py, of which segments forget what was before them; `slow`, -1e-3, of which none does within 16K tokens.
Medians of CUDA-graph replays in microseconds, the L2 cache overwritten before each; rel_err is rms(o - o of one pass) /
rms(o of one pass). --kernels: what each kernel takes by PyTorch's profiler, which does not show how they overlap.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import models
import vs_fla

ROOT = Path(__file__).resolve().parents[1]
OPS = {"gated_delta_net": "gated_delta_rule", "kda": "kda", "delta_net": "delta_rule"}
COLUMNS = ["variant", "gates", "B", "T", "H", "segments", "us", "rel_err", "kernels", "schedule"]


def inputs_of(variant: str, gates: str, B: int, T: int, H: int, torch: Any) -> dict[str, Any]:
    x, _ = models.inputs_of(("", OPS[variant], B, T, H, H, 128, 128), torch)
    if gates == "slow" and "g" in x:
        x["g"] = torch.full_like(x["g"], -1e-3)
    return {**x, "scale": 128**-0.5}


def kernel_times(call: Any, torch: Any) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    rows = [(e.key, e.device_time) for e in profile.key_averages() if "forge_" in e.key]
    return " ".join(f"{name.rsplit('_', 1)[-1]}:{us:.0f}" for name, us in rows)


def measured(variant: str, x: dict[str, Any], segments: int, args: Any, torch: Any) -> tuple[dict[str, Any], Any]:
    from forge import Attention, variants

    options = {"strategy": "one-pass"} if segments == 1 else {"strategy": "segmented", "segments": segments}
    attn = Attention(getattr(variants, variant).definition, options=options if segments else {})
    call = lambda: attn(**x)  # noqa: E731
    outputs = call()
    o = outputs[0] if isinstance(outputs, tuple) else outputs
    row = {"segments": segments or "auto", "us": f"{vs_fla.graph_us(call, args.runs, torch):.1f}"}
    row["schedule"] = attn.info["schedule"].replace(",", ";") if "schedule" in attn.info else attn.info["strategy"]
    row["kernels"] = kernel_times(call, torch) if args.kernels else ""
    return row, o.float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", default=",".join(OPS))
    parser.add_argument("--gates", default="models,slow")
    parser.add_argument("--heads", default="4,8,16,32")
    parser.add_argument("--tokens", default="8192,32768")
    parser.add_argument("--segments", default="0,1,2,4,8,16", help="0: what is chosen; 1: one pass")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--csv", default="segments.csv")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "python"))
    import torch

    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        now = datetime.datetime.now(datetime.timezone.utc)
        device = torch.cuda.get_device_name()
        print(f"# {now:%Y-%m-%d %H:%M} UTC | {device} | {head.stdout.strip()} | {' '.join(sys.argv)}", file=file)
        out = csv.DictWriter(file, COLUMNS)
        out.writeheader()
        for variant in args.variants.split(","):
            for T in (int(n) for n in args.tokens.split(",")):
                for H in (int(n) for n in args.heads.split(",")):
                    for gates in args.gates.split(",") if variant != "delta_net" else ["none"]:
                        x, reference = inputs_of(variant, gates, 1, T, H, torch), None
                        for n in sorted((int(n) for n in args.segments.split(",")), key=lambda n: (n != 1, n)):
                            if n > 1 and (n * 2 * H > 2 * 132 or T // 64 // n < 4):
                                continue
                            row, o = measured(variant, x, n, args, torch)
                            reference = o if reference is None else reference
                            error = (o - reference).square().mean().sqrt() / reference.square().mean().sqrt()
                            row |= {"variant": variant, "gates": gates, "B": 1, "T": T, "H": H}
                            row["rel_err"] = f"{error.item():.2e}"
                            out.writerow(row)
                            print(*(row[c] for c in COLUMNS), flush=True)
                            file.flush()


if __name__ == "__main__":
    main()
