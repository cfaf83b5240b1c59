#!/usr/bin/env python3
"""Shapes that models have: Forge beside flash-linear-attention, forward, on one GPU: one process, the same inputs.

    python3 bench/models.py --csv models.csv --bandwidth 4.2
    python3 bench/models.py --cases kimi_8k,gdn_training --csv models.csv

Per row, medians of CUDA-graph replays in microseconds, the L2 cache overwritten before each; the floor is inputs read
once and outputs written once at --bandwidth, `of_floor` its share of Forge's time. Keys are unit and correlated (cosine
of about 0.2 between tokens), gates -A softplus(randn) with A from 0.01 to 0.31 per head, beta sigmoid(randn), all else
normal; bf16, gates float32 (hgrn: bf16). `varlen`: lognormal lengths with a median of 270, 32768 tokens in all. rel_err
is rms(forge - fla) / rms(fla). A row that fails says why in its last column; a process that is taken down is replaced,
as in bench/vs_fla.py.

    python3 bench/models.py --dry-run       # no GPU: Forge on the CPU, 70 tokens and two heads of each case
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import vs_fla

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ["case", "op", "B", "T", "H", "HV", "K", "V", "fla_us", "forge_us", "fla_over_forge", "floor_us", "of_floor",
           "rel_err", "error"]  # fmt: skip
#: name, operator, B, T, H, HV, K, V
CASES = [
    ("qwen3next_2k", "gated_delta_rule", 1, 2048, 16, 32, 128, 128),
    ("qwen3next_8k", "gated_delta_rule", 1, 8192, 16, 32, 128, 128),
    ("qwen3next_32k", "gated_delta_rule", 1, 32768, 16, 32, 128, 128),
    ("qwen3next_tp8_8k", "gated_delta_rule", 1, 8192, 2, 4, 128, 128),
    ("qwen3next_tp8_32k", "gated_delta_rule", 1, 32768, 2, 4, 128, 128),
    ("gdn_h32_2k", "gated_delta_rule", 1, 2048, 32, 32, 128, 128),
    ("gdn_h32_8k", "gated_delta_rule", 1, 8192, 32, 32, 128, 128),
    ("gdn_h32_32k", "gated_delta_rule", 1, 32768, 32, 32, 128, 128),
    ("gdn_1b_fla_default", "gated_delta_rule", 4, 2048, 6, 6, 256, 512),
    ("gdn_training", "gated_delta_rule", 8, 2048, 16, 16, 128, 128),
    ("gdn_varlen", "gated_delta_rule", 1, 32768, 32, 32, 128, 128),
    ("kimi_8k", "kda", 1, 8192, 32, 32, 128, 128),
    ("kimi_tp4_32k", "kda", 1, 32768, 8, 8, 128, 128),
    ("kda_varlen", "kda", 1, 32768, 32, 32, 128, 128),
    ("mamba2_2.7b", "simple_gla", 2, 4096, 80, 80, 128, 64),
    ("minimax_8k", "lightning_attn", 1, 8192, 64, 64, 128, 128),
    ("minimax_tp8_32k", "lightning_attn", 1, 32768, 8, 8, 128, 128),
    ("retnet_2.7b", "retention", 4, 2048, 10, 10, 256, 512),
    ("gla_1.3b", "gla", 4, 2048, 4, 4, 256, 512),
    ("hgrn2_1.3b", "gla", 4, 2048, 16, 16, 128, 128),
    ("rwkv6_3b", "rwkv6", 4, 2048, 40, 40, 64, 64),
    ("deltanet_1.3b", "delta_rule", 8, 2048, 16, 16, 128, 128),
    ("hgrn_1.3b", "hgrn", 8, 2048, 1, 1, 2048, 2048),
    ("sgla_d64", "simple_gla", 1, 16384, 32, 32, 64, 64),
    ("sgla_varlen", "simple_gla", 1, 32768, 32, 32, 128, 128),
    ("deltaproduct_2", "gated_delta_product", 2, 2048, 16, 16, 128, 128),
]
#: where operators of flash-linear-attention are that fla.ops has not
FLA_MODULES = {"hgrn": "fla.ops.hgrn.chunk", "gated_delta_product": "fla.ops.gated_delta_product"}
MEDIAN, SPREAD = 270, 0.9  #: tokens, of packed sequences; standard deviation of the logarithm


def lengths(tokens: int) -> list[int]:
    """Of packed sequences, the last one cut to the sum."""
    draw, found = random.Random(42), []
    while tokens > 0:
        found.append(min(tokens, max(1, round(draw.lognormvariate(math.log(MEDIAN), SPREAD)))))
        tokens -= found[-1]
    return found


def inputs_of(case: tuple, torch, device: str = "cuda") -> tuple[dict, dict]:
    """(tensors, other arguments) that both operators take."""
    name, op, B, T, H, HV, K, V = case
    F = torch.nn.functional
    torch.manual_seed(42)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device=device, dtype=dtype)

    def unit_keys(*shape):
        common = normal(1, 1, *shape[2:], dtype=torch.float32)
        return F.normalize(normal(*shape, dtype=torch.float32) + 0.5 * common, dim=-1).bfloat16()  # 0.25 / 1.25 = 0.2

    def gates(*shape):
        """One rate per head, the third axis."""
        rates = torch.linspace(0.01, 0.31, shape[2], device=device).view(-1, *[1] * (len(shape) - 3))
        return -rates * F.softplus(normal(*shape, dtype=torch.float32))

    if op == "hgrn":
        return {"x": normal(B, T, V), "g": gates(B, T, 1, V).flatten(2).bfloat16()}, {}
    rows = 2 if op == "gated_delta_product" else 1
    first = "r" if op == "rwkv6" else "q"
    x = {first: normal(B, T, H, K), "k": unit_keys(B, rows * T, H, K), "v": normal(B, rows * T, HV, V)}
    more: dict = {}
    if op in ("simple_gla", "gated_delta_rule", "gated_delta_product"):
        x["g"] = gates(B, T, HV)
    if op in ("gla", "kda"):
        x["g"] = gates(B, T, HV, K)
    if op == "rwkv6":
        x |= {"w": gates(B, T, H, K), "u": normal(H, K)}
    if op in ("delta_rule", "gated_delta_rule", "gated_delta_product", "kda"):
        x["beta"] = torch.sigmoid(normal(B, rows * T, HV))
    if rows > 1:
        more["num_householder"] = rows
    if op == "lightning_attn":
        more |= {"layer_idx": 8, "num_layers": 16}
    if "varlen" in name:
        ends = torch.tensor([0, *lengths(T)], device=device).cumsum(0)
        more["cu_seqlens"] = ends.to(torch.int64)
    return x, more


def operator(place: str, op: str):
    """The public function of flash-linear-attention or of Forge."""
    if place == "fla":
        ops = importlib.import_module(FLA_MODULES.get(op, "fla.ops"))
    else:
        sys.path.insert(0, str(ROOT / "python"))
        from forge import ops
    return getattr(ops, f"chunk_{op}")


def row_of(case: tuple, args, torch) -> dict:
    name, op = case[:2]
    row = dict(zip(COLUMNS, case))
    x, more = inputs_of(case, torch)
    outputs, errors = {}, []
    for place in ("forge",) if args.no_fla else ("fla", "forge"):
        try:
            run = operator(place, op)
            call = lambda run=run: run(**x, **more)[0]  # noqa: E731
            outputs[place] = call()
            torch.cuda.synchronize()
            row[f"{place}_us"] = vs_fla.graph_us(call, args.runs, torch)
        except Exception as error:  # noqa: BLE001
            errors.append(f"{place}: {error!r}")
    if len(outputs) == 2:
        wanted = outputs["fla"].float()
        row["rel_err"] = ((outputs["forge"].float() - wanted).square().mean() / wanted.square().mean()).sqrt().item()
    read = sum(t.numel() * t.element_size() for t in x.values())
    written = next((o.numel() * o.element_size() for o in outputs.values()), 0)
    row["floor_us"] = (read + written) / args.bandwidth / 1e6
    if "forge_us" in row:
        row["of_floor"] = row["floor_us"] / row["forge_us"]
    if "fla_us" in row and "forge_us" in row:
        row["fla_over_forge"] = row["fla_us"] / row["forge_us"]
    row["error"] = "; ".join(errors).replace("\n", " ")[:400]
    return row


def work(args) -> None:
    """The child: measures the cases that stand on its input."""
    os.environ["FLA_DISABLE_BACKEND_DISPATCH"] = "1"
    import torch

    torch.set_grad_enabled(False)
    for line in sys.stdin:
        try:
            row = row_of(tuple(json.loads(line)), args, torch)
        except Exception as error:  # noqa: BLE001
            row = dict(zip(COLUMNS, json.loads(line))) | {"error": repr(error).replace("\n", " ")[:400]}
        print("ROW " + json.dumps(row), flush=True)
        try:
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
        except Exception:  # noqa: BLE001 (after a fault nothing works in this process)
            os._exit(1)


def rows(cases: list[tuple], arguments: list[str]):
    """A row for each case, whatever happens to the processes that measure them."""
    while cases:
        child = subprocess.Popen(
            [sys.executable, __file__, "--child", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdin and child.stdout
        child.stdin.write("".join(json.dumps(case) + "\n" for case in cases))
        child.stdin.close()
        for line in child.stdout:
            if line.startswith("ROW "):
                yield json.loads(line[4:])
                cases = cases[1:]
            else:
                print(line, end="", file=sys.stderr)
        if child.wait() != 0 and cases:
            yield dict(zip(COLUMNS, cases[0])) | {"error": f"the process ended with {child.returncode}"}
            cases = cases[1:]


def dry_run(cases: list[tuple]) -> None:
    """Forge's operators take the inputs, and their outputs are finite."""
    import torch

    for name, op, B, _, H, HV, _, _ in cases:
        small = (name, op, 1 if "varlen" in name else min(B, 2), 70, min(H, 2), min(HV, 2 * HV // H), 16, 16)
        x, more = inputs_of(small, torch, "cpu")
        o = operator("forge", op)(**x, **more)[0]
        assert o.shape[:2] == (small[2], 70) and o.isfinite().all(), name
        print(f"{name:20} {op:20} {tuple(o.shape)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", help="names, separated by commas; all by default")
    parser.add_argument("--csv", default="models.csv")
    parser.add_argument("--runs", type=int, default=30, help="replays")
    parser.add_argument("--bandwidth", type=float, default=4.2, help="TB/s, for the floor (4.2: an H200's)")
    parser.add_argument("--no-fla", action="store_true", help="Forge alone")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, small, without times")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return work(args)
    known = {case[0]: case for case in CASES}
    names = args.cases.split(",") if args.cases else list(known)
    if unknown := [n for n in names if n not in known]:
        parser.error(f"--cases: expected some of {', '.join(known)}; got {', '.join(unknown)}")
    cases = [known[n] for n in names]
    if args.dry_run:
        return dry_run(cases)
    passed = ["--runs", str(args.runs), "--bandwidth", str(args.bandwidth), *(["--no-fla"] if args.no_fla else [])]
    with open(args.csv, "w", encoding="utf-8") as csv:
        for line in [*vs_fla.header()[:3], ",".join(COLUMNS)]:
            print(line, file=csv, flush=True)
            print(line, flush=True)
        for row in rows(cases, passed):
            line = ",".join(vs_fla.shown(row.get(column)) for column in COLUMNS)
            print(line, file=csv, flush=True)
            print(line, flush=True)
    return None


if __name__ == "__main__":
    main()
