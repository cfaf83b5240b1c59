#!/usr/bin/env python3
"""Decoding beside flash-linear-attention's fused_recurrent_*, one token per sequence, and beside what memory allows.

    python3 bench/decode.py --csv decode.csv                       # on a GPU
    python3 bench/decode.py --device cpu --B 8 --ops gdn           # on the CPU: Forge alone, beside a copy

Forge decodes as an engine would: states lie in a pool of more slots than sequences, each sequence has one of them, in
no order, and is read and written there (`attn.decode(…, state=pool, slots=slots)`). FLA's operators take the states one
after the other and write the new ones elsewhere, which moves the same bytes (its new states are float32 in any case).
K = V = 128, 32 heads, inputs in bfloat16, gates in float32; both begin with the same states, and outputs and new states
are compared. Per row:

    forge_us, fla_us   median of CUDA-graph replays between two events, the L2 cache overwritten before each (--flush):
                       its dirty lines are written back while the kernel runs, as its own will be under the next one.
                       --layers: a graph has so many calls, with states of their own, as a model's step has; the time
                       is that of one. With 1 the graph's own launch, some 5 us, is in it
    ratio              fla_us / forge_us
    floor_us           states in and out and all vectors, once, at --bandwidth
    of_floor           floor_us / forge_us
    forge_kernels      kernels in the captured graph; other nodes (copies, memsets) in forge_others
    rel_err, state_err rms(forge - fla) / rms(fla) of outputs and of states

On the CPU both are one thread's CPU time, as other work on the machine would count in wall time, and the floor is that
of a copy of as many bytes as the states have, measured in turns with the kernel.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
K = V = 128
COLUMNS = [
    "op", "states", "B", "H", "HV", "layers", "forge_us", "fla_us", "ratio", "floor_us", "of_floor", "fla_of_floor",
    "state_bytes", "forge_kernels", "forge_others", "rel_err", "state_err", "schedule", "error",
]  # fmt: skip

#: variant of Forge, module and name of FLA's operator, whether gates are vectors, whether there is a rate
OPS = {
    "gdn": ("gated_delta_net", "gated_delta_rule", "fused_recurrent_gated_delta_rule", "g", False, True),
    "simple_gla": ("scalar_gla", "simple_gla", "fused_recurrent_simple_gla", "g", False, False),
    "kda": ("kda", "kda", "fused_recurrent_kda", "g", True, True),
    "gla": ("gla", "gla", "fused_recurrent_gla", "gk", True, False),
}
FEWER_HEADS = ("gdn", "kda")  #: whose operators in FLA take q and k with fewer heads than v


def inputs_of(op: str, B: int, H: int, HV: int, device: str, torch) -> dict:
    """A row's inputs by Forge's names."""
    vector, rates = OPS[op][4:]
    torch.manual_seed(42)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device=device, dtype=dtype)

    x = {"q": normal(B, 1, H, K), "k": normal(B, 1, H, K), "v": normal(B, 1, HV, V)}
    x["k"] = torch.nn.functional.normalize(x["k"].float(), dim=-1).bfloat16()
    gates = normal(B, 1, HV, K, dtype=torch.float32) if vector else normal(B, 1, HV, dtype=torch.float32)
    x["g"] = torch.nn.functional.logsigmoid(gates)
    if rates:
        x["beta"] = torch.rand(B, 1, HV, device=device).bfloat16()
    return x


class ForgeCall:
    """One token of each sequence, states in slots of a pool."""

    def __init__(self, op: str, x: dict, states, torch, options: dict):
        from forge import Attention, variants

        B = states.shape[0]
        definition = getattr(variants, OPS[op][0]).definition
        self._attention = Attention(definition, options=options)
        self._slots = torch.randperm(B + B // 4, device=states.device)[:B].to(torch.int32)
        self._pool = torch.zeros((B + B // 4, *states.shape[1:]), dtype=states.dtype, device=states.device)
        self._pool[self._slots.long()] = states
        self._x, self._scale = x, K**-0.5

    def __call__(self):
        return self._attention.decode(**self._x, scale=self._scale, state=self._pool, slots=self._slots)

    @property
    def states(self):
        return self._pool[self._slots.long()]

    @property
    def schedule(self) -> str:
        info = self._attention.info
        return f"{info['engine']} {info['strategy']} for {info['arch']}"


def fla_call(op: str, x: dict, states):
    """A function of no arguments: FLA's operator, which returns (outputs, states)."""
    import importlib

    module, name, gate = OPS[op][1:4]
    run = getattr(importlib.import_module(f"fla.ops.{module}"), name)
    named = {**{n: t for n, t in x.items() if n != "g"}, gate: x["g"]}
    return lambda: run(**named, initial_state=states, output_final_state=True)


# ------------------------------------------------------------------------------------------------- measuring on a GPU


def captured(calls, torch):
    """A graph of these calls, and how many kernels and other nodes each has (None: PyTorch does not say)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # a call changes states in place, which may still be being copied
    with torch.cuda.stream(side):
        for call in calls * 3:
            call()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
    except TypeError:
        graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call() for call in calls]  # each with memory of its own for what it makes
    kernels, others = nodes_of(graph)
    del kept
    return graph, *(n if n is None else n / len(calls) for n in (kernels, others))


def nodes_of(graph):
    try:
        handle = ctypes.c_void_p(graph.raw_cuda_graph())
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_size_t()
        if driver.cuGraphGetNodes(handle, None, ctypes.byref(count)):
            return None, None
        nodes = (ctypes.c_void_p * count.value)()
        driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count))
        kinds = []
        for node in nodes:
            kind = ctypes.c_int()
            driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
            kinds.append(kind.value)
        return kinds.count(0), len(kinds) - kinds.count(0)  # CU_GRAPH_NODE_TYPE_KERNEL is 0
    except (AttributeError, OSError, RuntimeError):
        return None, None


def replay_us(graph, flush, runs: int, torch) -> list[float]:
    times = []
    for run in range(runs + 3):
        flush()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if run >= 3:
            times.append(begin.elapsed_time(end) * 1e3)
    return times


def flusher(kind: str, torch):
    memory = torch.zeros(64 << 20, device="cuda", dtype=torch.float32)
    if kind == "write":
        return memory.zero_
    return (lambda: memory.sum()) if kind == "read" else (lambda: None)


def gpu_row(row: dict, x: dict, states, args, torch) -> None:
    op, errors = row["op"], []
    flush = flusher(args.flush, torch)
    outputs: dict = {}
    try:
        layers = [ForgeCall(op, x, states, torch, args.options) for _ in range(args.layers)]
        outputs["forge"] = layers[0]().clone(), layers[0].states
        row["schedule"] = layers[0].schedule
        graph, row["forge_kernels"], row["forge_others"] = captured(layers, torch)
        row["forge_us"] = statistics.median(replay_us(graph, flush, args.runs, torch)) / args.layers
        del graph, layers
    except Exception as error:  # noqa: BLE001
        errors.append(f"forge: {error!r}")
    if not args.no_fla:
        try:
            layers = [fla_call(op, x, states.clone()) for _ in range(args.layers)]
            outputs["fla"] = tuple(t.clone() for t in layers[0]())
            graph, _, _ = captured(layers, torch)
            row["fla_us"] = statistics.median(replay_us(graph, flush, args.runs, torch)) / args.layers
            del graph, layers
        except Exception as error:  # noqa: BLE001
            errors.append(f"fla: {error!r}")
    if len(outputs) == 2:
        for column, ours, theirs in zip(("rel_err", "state_err"), outputs["forge"], outputs["fla"]):
            wanted = theirs.float()
            row[column] = ((ours.float() - wanted).square().mean() / wanted.square().mean()).sqrt().item()
    row["error"] = "; ".join(errors).replace("\n", " ")[:400]


# ------------------------------------------------------------------------------------------------ measuring on the CPU


def cpu_us(call, seconds: float) -> float:
    """The median of some runs."""
    call()
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 5:
        begin = time.process_time_ns()
        call()
        times.append((time.process_time_ns() - begin) / 1e3)
    return statistics.median(times)


def cpu_row(row: dict, x: dict, states, args, torch) -> None:
    forge = ForgeCall(row["op"], x, states, torch, {**args.options, "threads": 1})
    forge()
    row["schedule"] = forge.schedule
    torch.set_num_threads(1)
    there = torch.empty_like(states)
    ours, copies = [], []
    for _ in range(args.runs):  # in turns: both meet the same neighbours
        ours.append(cpu_us(forge, 0.2))
        copies.append(cpu_us(lambda: there.copy_(states), 0.2))
    row["forge_us"] = statistics.median(ours)
    args.bandwidth = 2 * states.numel() * states.element_size() / statistics.median(copies) / 1e6


# ---------------------------------------------------------------------------------------------------------- the program


def row_of(op: str, dtype: str, B: int, args, torch) -> dict:
    H = args.H if op in FEWER_HEADS else args.HV
    row = {"op": op, "states": dtype, "B": B, "H": H, "HV": args.HV, "layers": args.layers}
    x = inputs_of(op, B, H, args.HV, args.device, torch)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    states = torch.randn(B, args.HV, K, V, device=args.device).to(kind)
    try:
        (cpu_row if args.device == "cpu" else gpu_row)(row, x, states, args, torch)
    except Exception as error:  # noqa: BLE001
        row["error"] = repr(error).replace("\n", " ")[:400]
    row["state_bytes"] = states.numel() * states.element_size()
    vectors = sum(t.numel() * t.element_size() for t in [*x.values(), x["v"]])
    row["floor_us"] = (2 * row["state_bytes"] + vectors) / args.bandwidth / 1e6
    for side, column in (("forge", "of_floor"), ("fla", "fla_of_floor")):
        if f"{side}_us" in row:
            row[column] = row["floor_us"] / row[f"{side}_us"]
    if "fla_us" in row and "forge_us" in row:
        row["ratio"] = row["fla_us"] / row["forge_us"]
    return row


def header(args, torch) -> list[str]:
    from importlib.metadata import distributions

    versions = {d.metadata["Name"]: d.version for d in distributions()}
    named = ", ".join(f"{name} {versions.get(name, 'none')}" for name in ("torch", "triton", "fla-core"))
    device = f"CPU, {os.cpu_count()} cores"
    if args.device == "cuda":
        query = "nvidia-smi --query-gpu=driver_version,clocks.max.sm,utilization.gpu --format=csv,noheader"
        driver = subprocess.run(query, shell=True, capture_output=True, text=True, check=False).stdout.split("\n")[0]
        device = f"{torch.cuda.get_device_name()}, driver, max clock, what others had of it before: {driver}"
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    import forge

    return [
        f"# {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC | {device} | {named} | "
        f"forge {forge.__version__} {commit}",
        f"# {' '.join(sys.argv)}",
        f"# {__doc__.splitlines()[0]} K=V={K}, inputs bf16; microseconds; floor at {args.bandwidth:g} TB/s.",
    ]


def shown(value) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"
    return "" if value is None else str(value).replace(",", ";")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--B", default="8,32,128,512")
    parser.add_argument("--states", default="f32,bf16")
    parser.add_argument("--H", type=int, default=32, help="heads of q and k, where FLA takes fewer than of v")
    parser.add_argument("--HV", type=int, default=32)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--layers", type=int, default=1, help="calls in a graph, each with states of its own")
    parser.add_argument("--runs", type=int, help="replays (100); on the CPU turns of 0.2 s each (5)")
    parser.add_argument("--bandwidth", type=float, default=4.2, help="TB/s, for the floor (H200: 4.2 as measured)")
    parser.add_argument("--flush", choices=("write", "read", "none"), default="write", help="of the L2 cache")
    parser.add_argument("--options", type=json.loads, default={}, help='Forge\'s, as JSON: {"threads": 32, "tiles": 8}')
    parser.add_argument("--no-fla", action="store_true")
    parser.add_argument("--csv", default="decode.csv")
    args = parser.parse_args()
    args.runs = args.runs or (5 if args.device == "cpu" else 100)
    os.environ["FLA_DISABLE_BACKEND_DISPATCH"] = "1"  # it is FLA's Triton kernels that are measured
    sys.path.insert(0, str(ROOT / "python"))
    import torch

    torch.set_grad_enabled(False)
    failed = 0
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        for line in header(args, torch):
            print(line, file=file, flush=True)
            print(line, flush=True)
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        print(",".join(COLUMNS), flush=True)
        for dtype in args.states.split(","):
            for op in args.ops.split(","):
                for B in map(int, args.B.split(",")):
                    row = row_of(op, dtype, B, args, torch)
                    failed += bool(row.get("error"))
                    values = [shown(row.get(column)) for column in COLUMNS]
                    rows.writerow(values)
                    file.flush()
                    print(",".join(values), flush=True)
                    if args.device == "cuda":
                        torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
