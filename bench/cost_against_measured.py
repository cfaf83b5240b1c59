#!/usr/bin/env python3
"""Holds what `forge cost` predicts against what was measured on a GPU.

    bench/cost_against_measured.py bench/results/2026-11-22-h200-vs-fla.csv [--forge build/forge] [--on h200]
    bench/cost_against_measured.py --models ../shared/anchors/models_h200.csv
    bench/cost_against_measured.py --zoo bench/results/2026-11-23-h200-derived.csv

The first file is what bench/vs_fla.py --csv wrote, whose heads and sizes stand in its header; the second has shapes
of models, of which packed sequences are left out; the third has variants of the zoo, by bench/derived.py. Prints
predicted, measured and their ratio, row by row. Needs neither a GPU nor packages."""

import argparse
import csv
import json
import math
import re
import subprocess
from pathlib import Path

VARIANTS = {
    "simple_gla": "scalar_gla",
    "linear": "linear_attention",
    "gla": "gla",
    "hgrn": str(Path(__file__).parent / "gated_scan.ir"),  # what forge.ops compiles, gates in bf16
    "gdn": "gated_delta_net",
    "delta": "delta_net",
    "kda": "kda",
    "gated_delta_rule": "gated_delta_net",
    "lightning_attn": "lightning_attention",
    "retention": "retnet",
    "rwkv6": "rwkv6",
    "delta_rule": "delta_net",
    "gated_delta_product": "delta_product",
}


def rows_of(path):
    lines = open(path, encoding="utf-8").read().splitlines()
    header = "\n".join(line for line in lines if line.startswith("#"))
    return list(csv.DictReader(line for line in lines if not line.startswith("#"))), header


def predicted(forge, on, variant, shape):
    """What `forge cost` says of the forward pass, as JSON."""
    sizes = [
        word for name, n in shape.items() for word in ((f"--size=D={n}",) if name == "D" else (f"--{name}", str(n)))
    ]
    command = [forge, "cost", variant, "--on", on, "--entry", "forward", "--json", "--untuned", *sizes]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]


def of_operators(path):
    """(what, variant, shape, microseconds) of bench/vs_fla.py's file."""
    rows, header = rows_of(path)
    shape = {name: int(n) for name, n in re.findall(r"\b([BH])=(\d+)", header)}
    size = int(re.search(r"K=V=(\d+)", header).group(1))
    for r in rows:
        if r["error"]:
            continue
        vector = {"B": shape["B"], "H": 1, "D": 1024}  # hgrn there: one head of 1024 channels
        full = vector if r["op"] == "hgrn" else {**shape, "K": size, "V": size}
        yield r["op"], VARIANTS[r["op"]], {"T": int(r["T"]), **full}, float(r["forge_graph_us"])


def of_models(path):
    rows, _ = rows_of(path)
    for r in rows:
        if "varlen" in r["case"] or not r["forge_us"]:
            continue  # packed sequences of many lengths
        variant = VARIANTS.get(r["op"], r["op"])  # HGRN-2 is called as GLA there, with keys of its own
        shape = {"B": int(r["B"]), "T": int(r["T"]), "H": int(r["H"])}
        if r["op"] == "hgrn":
            shape["D"] = int(r["V"])
        else:
            shape |= {"HV": int(r["HV"]), "K": int(r["K"]), "V": int(r["V"])}
        yield r["case"], variant, shape, float(r["forge_us"])


def of_zoo(path):
    rows, header = rows_of(path)
    shape = {name: int(n) for name, n in re.findall(r"--([TH]) (\d+)", header)}
    for r in rows:
        yield r["variant"], r["variant"], {**shape, "D": 128}, float(r["written_us"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", help="of bench/vs_fla.py")
    parser.add_argument("--models")
    parser.add_argument("--zoo", help="of bench/derived.py")
    parser.add_argument("--forge", default="build/forge")
    parser.add_argument("--on", default="h200")
    parser.add_argument("--tokens", type=int, nargs="*", help="only these lengths")
    parser.add_argument("--markdown", action="store_true")
    o = parser.parse_args()
    cases = []
    for path, read in ((o.results, of_operators), (o.models, of_models), (o.zoo, of_zoo)):
        if path:
            cases += read(path)
    form = "| {} | {} | {} | {} | {} | {} |" if o.markdown else "{:24} {:>7} {:>11} {:>11} {:>8}  {}"
    print(form.format("operator", "T", "predicted", "measured", "ratio", "bound by"))
    if o.markdown:
        print("|---|---|---|---|---|---|")
    errors = []
    for what, variant, shape, microseconds in sorted(cases, key=lambda c: (c[0], c[2]["T"])):
        if o.tokens and shape["T"] not in o.tokens:
            continue
        cost = predicted(o.forge, o.on, variant, shape)
        ratio = cost["seconds"] * 1e6 / microseconds
        errors.append(abs(math.log(ratio)))
        print(form.format(what, shape["T"], f"{cost['seconds'] * 1e6:.1f}", f"{microseconds:.1f}", f"{ratio:.2f}",
                          cost["bound"]))  # fmt: skip
    if errors and not o.markdown:
        print(f"\n{len(errors)} predictions, the worst off by a factor of {math.exp(max(errors)):.2f}")


if __name__ == "__main__":
    main()
