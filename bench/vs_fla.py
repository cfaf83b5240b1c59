#!/usr/bin/env python3
"""Forge beside flash-linear-attention, forward, on one GPU: the same process, the same inputs, outputs compared.

    python3 bench/vs_fla.py --csv results.csv --T 1024,8192,65536 --ops gdn,kda
    python3 bench/vs_fla.py --backward --csv results.csv        # forward and backward: bench/backward.py

Inputs are those of the published comparison: B=1 H=32 K=V=128 bf16, gates f32, g=logsigmoid(randn) (kda: at least -5),
beta=rand bf16, unit keys; hgrn one head of 1024 channels, all bf16. Per row:

    *_graph_us   median of CUDA-graph replays between two events, the L2 cache overwritten before each
    *_e2e_us     median wall time of one eager call and a synchronisation
    *_host_us    time until an eager call returns, over 20 calls in a row
    rel_err      rms(forge - fla) / rms(fla) over outputs
    floor_us     inputs read once and outputs written once, at --bandwidth

Both are called through their public functions, fla.ops and forge.ops, which have the same arguments. Other back ends of
fla (FlashQLA, FlashKDA, …) are switched off: it is its Triton kernels that are measured. Rows run in a child process,
which is replaced if one of them takes it down; a row that fails says why in its last column.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import backward

ROOT = Path(__file__).resolve().parents[1]
B, H, D, CHANNELS = 1, 32, 128, 1024
COLUMNS = [
    "op",
    "T",
    "fla_graph_us",
    "forge_graph_us",
    "ratio",
    "fla_e2e_us",
    "forge_e2e_us",
    "fla_host_us",
    "forge_host_us",
    "rel_err",
    "floor_us",
    "fla_of_floor",
    "forge_of_floor",
    "forge_strategy",
    "forge_chunk",
    "forge_kernels",
    "forge_build_s",
    "error",
]


# ------------------------------------------------------------------------------------------------------------ operators


def inputs_of(op: str, T: int, torch, B: int = B, H: int = H, D: int = D, channels: int = CHANNELS) -> dict:
    """A row's inputs by name, on the GPU."""
    F = torch.nn.functional
    torch.manual_seed(42)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def gates(*shape):
        return F.logsigmoid(normal(*shape, dtype=torch.float32))

    if op == "hgrn":
        return {"x": normal(B, T, 1, channels), "g": gates(B, T, 1, channels).bfloat16()}
    x = {"q": normal(B, T, H, D), "k": normal(B, T, H, D), "v": normal(B, T, H, D)}
    x["k"] = F.normalize(x["k"], dim=-1)
    if op in ("simple_gla", "gdn"):
        x["g"] = gates(B, T, H)
    if op == "gla":
        x["g"] = gates(B, T, H, D)
    if op in ("kda", "kda_safe"):
        x["g"] = gates(B, T, H, D).clamp(min=-5)
    if op in ("delta", "gdn", "kda", "kda_safe"):
        x["beta"] = torch.rand(B, T, H, device="cuda", dtype=torch.bfloat16)
    return x


def fla_call(op: str, x: dict):
    """A function of no arguments that runs fla's operator and returns its outputs."""
    if op == "hgrn":
        from fla.ops.hgrn.chunk import chunk_hgrn

        flat = [t.flatten(2) for t in (x["x"], x["g"])]
        return lambda: chunk_hgrn(*flat)[0].view_as(x["x"])
    import fla.ops

    run, more = {
        "simple_gla": (fla.ops.chunk_simple_gla, {}),
        "linear": (fla.ops.chunk_linear_attn, {"normalize": False}),
        "gla": (fla.ops.chunk_gla, {}),
        "delta": (fla.ops.chunk_delta_rule, {}),
        "gdn": (fla.ops.chunk_gated_delta_rule, {}),
        "kda": (fla.ops.chunk_kda, {}),
        "kda_safe": (fla.ops.chunk_kda, {"safe_gate": True}),
    }[op]
    return lambda: run(**x, **more)[0]


FORGE = {
    "simple_gla": ("chunk_simple_gla", "scalar_gla"),
    "linear": ("chunk_linear_attn", "linear_attention"),
    "gla": ("chunk_gla", "gla"),
    "delta": ("chunk_delta_rule", "delta_net"),
    "gdn": ("chunk_gated_delta_rule", "gated_delta_net"),
    "kda": ("chunk_kda", "kda"),
    "kda_safe": ("chunk_kda", "kda"),
    "hgrn": ("chunk_hgrn", "gated_scan"),
}


class ForgeCall:
    """Forge's operator on given inputs, through forge.ops; `info` says what was compiled."""

    def __init__(self, op: str, x: dict, options: dict):
        sys.path.insert(0, str(ROOT / "python"))
        from forge import ops
        from forge.ops._programs import program

        name, key = FORGE[op]
        self._run, self._program = getattr(ops, name), program(key)
        self._program.options.update(options)
        self._x = {n: t.flatten(2) for n, t in x.items()} if op == "hgrn" else x
        self._more = {"normalize": False} if op == "linear" else {}
        self._shape = next(iter(x.values())).shape if op == "hgrn" else None

    def __call__(self):
        o = self._run(**self._x, **self._more)[0]
        return o if self._shape is None else o.view(self._shape)

    @property
    def info(self) -> dict:
        return self._program.info

    @property
    def backward_schedule(self) -> str:
        """The engine and the strategy of the backward pass that ran."""
        for made in self._program._backward_passes.values():
            info = made._attention.info
            return f"{info['engine']} {info['strategy']} in {len(info['kernels'])} kernels"
        return ""


# ------------------------------------------------------------------------------------------------------------ measuring


def graph_us(call, runs: int, torch) -> float:
    """Median microseconds of a replay of the captured call, with a cold L2 cache."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # which may still make what the calls read
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    flush = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    times = []
    for run in range(runs + 3):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if run >= 3:
            times.append(begin.elapsed_time(end) * 1e3)
    del graph, result
    return statistics.median(times)


def e2e_us(call, runs: int, torch) -> float:
    times = []
    for _ in range(runs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def host_us(call, torch) -> float:
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            call()
        times.append((time.perf_counter() - begin) / 20 * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def measure(call, T: int, runs: int, torch) -> dict:
    most = max(5, min(runs, (1 << 20) // T * 4))  # long sequences vary less, and take long
    return {
        "graph_us": graph_us(call, most, torch),
        "e2e_us": e2e_us(call, most, torch),
        "host_us": host_us(call, torch) if T <= 32768 else None,
    }


def row_of(op: str, T: int, args, torch) -> dict:
    row = {"op": op, "T": T}
    x = inputs_of(op, T, torch)
    fla = forge = None
    errors = []
    try:
        fla_run = fla_call(op, x)
        fla = fla_run()
        if not args.no_fla_times:
            row.update({f"fla_{name}": value for name, value in measure(fla_run, T, args.runs, torch).items()})
    except Exception as error:  # noqa: BLE001
        errors.append(f"fla: {error!r}")
    try:
        forge_run = ForgeCall(op, x, json.loads(args.options))
        forge = forge_run()
        info = forge_run.info
        row.update(
            forge_strategy=info["strategy"],
            forge_chunk=info["chunk"],
            forge_kernels=len(info["kernels"]),
            forge_build_s=info["build_seconds"],
        )
        torch.cuda.synchronize()
        row.update({f"forge_{name}": value for name, value in measure(forge_run, T, args.runs, torch).items()})
    except Exception as error:  # noqa: BLE001
        errors.append(f"forge: {error!r}")
    try:
        if fla is not None and forge is not None:
            wanted = fla.float()
            row["rel_err"] = ((forge.float() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()).item()
    except Exception as error:  # noqa: BLE001 (after a fault on the GPU nothing works there, but what was measured before counts)
        errors.append(f"comparison: {error!r}")
    output = x["x" if op == "hgrn" else "v"]
    bytes_moved = sum(t.numel() * t.element_size() for t in [*x.values(), output])
    row["floor_us"] = bytes_moved / args.bandwidth / 1e6
    for side in ("fla", "forge"):
        if f"{side}_graph_us" in row:
            row[f"{side}_of_floor"] = row["floor_us"] / row[f"{side}_graph_us"]
    if "fla_graph_us" in row and "forge_graph_us" in row:
        row["ratio"] = row["fla_graph_us"] / row["forge_graph_us"]
    row["error"] = "; ".join(errors).replace("\n", " ")[:400]
    return row


def backward_row(op: str, shape: str, args, torch) -> dict:
    forge: list[ForgeCall] = []

    def forge_call(op: str, x: dict):
        forge.append(ForgeCall(op, x, json.loads(args.options)))
        return forge[0]

    sides = {"forge": forge_call} if args.no_fla_times else {"fla": fla_call, "forge": forge_call}
    row = backward.row_of(op, shape, args, torch, inputs_of, sides)
    if forge:
        row["forge_backward"] = forge[0].backward_schedule
    return row


# ------------------------------------------------------------------------------------------------------------ processes


def tune_for(ms: float) -> None:
    """Triton's tuner measures each configuration for so long, and not 100 ms."""
    import triton.testing

    measured = triton.testing.do_bench

    def briefly(call, **options):
        return measured(call, **{**options, "warmup": ms / 4, "rep": ms})

    triton.testing.do_bench = briefly


def work(args) -> None:
    """The child: measures the rows that stand on its input, one JSON line each."""
    os.environ["FLA_DISABLE_BACKEND_DISPATCH"] = "1"
    import torch

    torch.set_grad_enabled(args.backward)
    if args.tuning_ms:
        tune_for(args.tuning_ms)
    for line in sys.stdin:
        op, T = json.loads(line)
        try:
            row = backward_row(op, T, args, torch) if args.backward else row_of(op, T, args, torch)
        except Exception as error:  # noqa: BLE001
            row = {"op": op, "shape" if args.backward else "T": T, "error": repr(error).replace("\n", " ")[:400]}
        print("ROW " + json.dumps(row), flush=True)
        try:
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
        except Exception:  # noqa: BLE001
            os._exit(1)


def rows_from_children(wanted: list, arguments: list[str]):
    """Yields one row for each wanted (op, T), whatever happens to the processes that measure them."""
    while wanted:
        child = subprocess.Popen(
            [sys.executable, __file__, "--child", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        child.stdin.write("".join(json.dumps(pair) + "\n" for pair in wanted))
        child.stdin.close()
        line = ""
        for line in child.stdout:
            if line.startswith("ROW "):
                yield json.loads(line[4:])
                wanted = wanted[1:]
            else:
                print(line, end="", file=sys.stderr)
        if child.wait() != 0 and wanted:
            print(f"the process ended with {child.returncode}; the rest goes to another", file=sys.stderr)
            if child.returncode != 1 or not line.startswith("ROW "):
                op, T = wanted[0]
                wanted = wanted[1:]
                yield {"op": op, "T": T, "shape": T, "error": f"the process ended with {child.returncode}"}


def header() -> list[str]:
    probe = (
        "import torch, triton; from importlib.metadata import distributions; p = torch.cuda.get_device_properties(0); "
        "fla = next((d.version for d in distributions() if d.metadata['Name'] == 'fla-core'), 'none'); "
        "print(p.name, '|', p.multi_processor_count, 'SMs | torch', torch.__version__, '| triton', "
        "triton.__version__, '| fla-core', fla)"
    )
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    query = "nvidia-smi --query-gpu=driver_version,clocks.max.sm,utilization.gpu --format=csv,noheader"
    driver = (
        subprocess.run(query, shell=True, capture_output=True, text=True, check=False)
        .stdout.strip()
        .replace("\n", "; ")
    )
    cores = os.getloadavg()[0] / (os.cpu_count() or 1)
    return [
        f"# {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC | "
        f"{found.stdout.strip() or found.stderr.strip()[-200:]}",
        f"# driver, max clock, what others had of the GPU before: {driver}; of the cores: {cores:.0%}",
        f"# {' '.join(sys.argv)}",
        f"# {__doc__.splitlines()[0]} B={B} H={H} K=V={D} bf16; microseconds.",
    ]


def shown(value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    return str(value).replace(",", ";")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--ops", default="simple_gla,gdn,linear,gla,hgrn,kda,delta", help="also: kda_safe (fla with safe_gate=True)"
    )
    parser.add_argument("--T", default="1024,2048,4096,8192,16384,32768,65536,131072,262144")
    parser.add_argument("--csv", default="vs_fla.csv")
    parser.add_argument("--runs", type=int, default=50, help="replays, at most")
    parser.add_argument(
        "--bandwidth", type=float, default=3.0, help="TB/s, for the floor (H100: 3.0 as measured there)"
    )
    parser.add_argument("--no-fla-times", action="store_true", help="fla runs once, for the comparison of outputs")
    for name in ("strategy", "chunk", "tiles", "segments", "threads"):
        parser.add_argument(f"--forge-{name}")
    parser.add_argument("--options", default="{}", help="further compile options of Forge, as JSON")
    parser.add_argument("--backward", action="store_true", help="forward and backward together")
    parser.add_argument("--shapes", default=backward.SHAPES, help="of --backward: BxTxHxD")
    parser.add_argument("--no-fla-guard", action="store_true", help="of --backward: see bench/backward.py")
    parser.add_argument("--tuning-ms", type=float, help="for which Triton's tuner measures a configuration (100)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    options = json.loads(args.options)
    options.update(
        {n: v for n in ("strategy", "chunk", "tiles", "segments", "threads") if (v := getattr(args, f"forge_{n}"))}
    )
    args.options = json.dumps(options)
    if args.child:
        return work(args)
    lengths = args.shapes.split(",") if args.backward else [int(T) for T in args.T.split(",")]
    wanted = [(op, length) for length in lengths for op in args.ops.split(",")]
    columns = backward.COLUMNS if args.backward else COLUMNS
    passed = [
        "--runs",
        str(args.runs),
        "--bandwidth",
        str(args.bandwidth),
        "--options",
        args.options,
        *(["--tuning-ms", str(args.tuning_ms)] if args.tuning_ms else []),
        *(["--no-fla-times"] if args.no_fla_times else []),
        *(["--backward"] if args.backward else []),
        *(["--no-fla-guard"] if args.no_fla_guard else []),
    ]
    with open(args.csv, "w", encoding="utf-8") as csv:
        for line in [*header(), ",".join(columns)]:
            print(line, file=csv, flush=True)
            print(line, flush=True)
        for row in rows_from_children(wanted, passed):
            line = ",".join(shown(row.get(column)) for column in columns)
            print(line, file=csv, flush=True)
            print(line, flush=True)
    return None


if __name__ == "__main__":
    main()
