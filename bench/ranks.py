#!/usr/bin/env python3
"""Sequence parallelism on GPUs: weak scaling of one sequence over ranks, beside other ways to compute the same.

    torchrun --nproc-per-node 2 bench/ranks.py --csv ranks.csv
    torchrun --nproc-per-node 2 bench/ranks.py --ops simple_gla --tokens 8192,32768

B=1 H=32 K=V=128 bf16, forward; each rank has T tokens, so that the sequence is as many times longer. With --strong the
sequence has T tokens in all, and each rank its part. Per row, of the slowest rank, the median of captured graphs
between two events (where `graph` is 1; eager calls where a method cannot be captured: the last column says why), begun
together by an all-reduce on the same stream, which nobody leaves before all have come:

    one        one rank, T tokens: what weak and strong scaling are measured against
    forge      forge.ops with cp_context: kernels write into each other's memory
    lasp2      the state of a rank's tokens by one product per head, all gathered by NCCL and summed, then Forge's pass
               from the sum
    serial     each rank's pass when the state before it has come by NCCL, and its final state sent on: no work twice
    fla        flash-linear-attention's context parallelism (fla.ops.cp; it has none for simple_gla)

All of Forge's, LASP-2 and serial are captured alike, collectives included. Gates of a row are 0 (`decay` none: nothing
is forgotten, no shortcut) unless --decay is given. The exchange alone, by scheme: bench/exchange.cpp.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import faulthandler
import gc
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import forge

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
H, D = 32, 128
HOST: dist.ProcessGroup | None = None  # over gloo, for barriers of the hosts


def inputs(op: str, tokens: int, decay: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(7 + RANK)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    q, k, v = (normal(1, tokens, H, D) for _ in range(3))
    given = {"q": q, "k": torch.nn.functional.normalize(k, dim=-1), "v": v}
    gates = torch.nn.functional.logsigmoid(normal(1, tokens, H).float())
    given["g"] = gates if decay else torch.zeros_like(gates)
    if op == "gated_delta_rule":
        given["beta"] = torch.rand(1, tokens, H, device="cuda", dtype=torch.bfloat16)
    return given


def summary_of(k: torch.Tensor, v: torch.Tensor, g: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What a rank's tokens do to a state that decays by a number: the state from zeros, and the decay. One product per
    head, of the tensors where they lie; without gates (None) nothing else is read."""
    decay = None
    if g is not None:
        sums = g[0].cumsum(0)  # [T, H]
        k = k * (sums[-1] - sums).exp().to(k.dtype)[None, ..., None]
        decay = sums[-1].exp()
    return torch.bmm(k[0].permute(1, 2, 0), v[0].transpose(0, 1), out_dtype=torch.float32), decay


def lasp2(given: dict[str, torch.Tensor], decays: bool) -> torch.Tensor:
    state, decay = summary_of(given["k"], given["v"], given["g"] if decays else None)
    mine = state.flatten() if decay is None else torch.cat([state.flatten(), decay])
    every = torch.empty(SIZE, mine.numel(), device="cuda")
    dist.all_gather_into_tensor(every, mine)
    before = torch.zeros_like(state)
    for r in range(RANK):
        part = every[r, : state.numel()].view_as(state)
        before = before + part if decay is None else before * every[r, -H:, None, None] + part
    return forge.ops.chunk_simple_gla(**given, initial_state=before[None])[0]


def serial(given: dict[str, torch.Tensor]) -> torch.Tensor:
    before = torch.zeros(1, H, D, D, device="cuda")
    if RANK > 0:
        dist.recv(before, RANK - 1)
    o, state = forge.ops.chunk_simple_gla(**given, initial_state=before, output_final_state=True)
    if RANK + 1 < SIZE:
        dist.send(state, RANK + 1)
    return o


def methods(
    op: str, tokens: int, given: dict[str, torch.Tensor], group: forge.distributed.Group, decays: bool
) -> dict[str, object]:
    cu_seqlens = torch.tensor([0, tokens * SIZE])
    whole = forge.Attention(getattr(forge.variants, VARIANTS[op]).definition, sp_group=group,
                            defaults={"scale": D**-0.5})  # fmt: skip
    order = [given[n] for n in ORDER[op]]
    found = {"forge": lambda: whole(*order)[0]}
    if op == "simple_gla":
        found |= {"lasp2": lambda: lasp2(given, decays), "serial": lambda: serial(given)}
    else:
        from fla.ops.cp import build_cp_context
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        context = build_cp_context(cu_seqlens.int().cuda(), dist.group.WORLD)
        found["fla"] = lambda: chunk_gated_delta_rule(**given, cp_context=context)[0]
        found["fla one"] = lambda: chunk_gated_delta_rule(**given)[0]
    return found


VARIANTS = {"simple_gla": "scalar_gla", "gated_delta_rule": "gated_delta_net"}
ORDER = {"simple_gla": ("q", "k", "v", "g"), "gated_delta_rule": ("q", "k", "v", "g", "beta")}


def captured(call) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    dist.barrier(group=HOST)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        call()
    torch.cuda.synchronize()
    dist.barrier(group=HOST)
    return graph


def time_of(call, runs: int, token: torch.Tensor) -> float:
    """Microseconds of the slowest rank from a common start."""
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        dist.all_reduce(token)  # on the same stream: nobody goes on before all have come
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def measured(name: str, call, runs: int, token: torch.Tensor) -> tuple[float, int, str]:
    """Microseconds, whether of a captured graph, and why not."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    if name.startswith("fla"):
        return time_of(call, runs, token), 0, "fla reads cu_seqlens on the host"
    graph = captured(call)
    us = time_of(graph.replay, runs, token)
    torch.cuda.synchronize()
    dist.barrier(group=HOST)  # a graph goes only when all ranks have replayed it, and before what its kernels use
    del graph
    return us, 1, ""


def rows_of(op: str, tokens: int, args: argparse.Namespace, group: forge.distributed.Group, token: torch.Tensor):
    """The rows of an operator and a number of tokens. What it captured and allocated ends with it."""
    rows, expected = [], None
    mine = tokens // SIZE if args.strong else tokens
    given = inputs(op, mine, args.decay)
    function = getattr(forge.ops, f"chunk_{op}")
    whole = inputs(op, tokens, args.decay) if args.strong else given
    calls = {"one": lambda: function(**whole)[0]} | methods(op, mine, given, group, args.decay)
    for name, call in calls.items():
        if args.methods and name not in args.methods.split(","):
            continue
        try:
            us, graph, why = measured(name, call, args.runs, token)
            o = call().float()
            torch.cuda.synchronize()
            if name == "forge":
                group.check()
                expected = o
            error = None
            if expected is not None and name in ("lasp2", "serial", "fla"):
                error = ((o - expected).norm() / expected.norm()).item()
            rows.append([op, SIZE, tokens, name, graph, round(us, 1), error, why])
        except Exception as wrong:  # noqa: BLE001 (the row says so)
            rows.append([op, SIZE, tokens, name, "", "", "", repr(wrong)[:200]])
        if RANK == 0:
            print(*rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ops", default="simple_gla,gated_delta_rule")
    parser.add_argument("--tokens", default="4096,8192,16384,32768,65536,131072")
    parser.add_argument("--methods", default="")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--decay", action="store_true")
    parser.add_argument("--strong", action="store_true", help="the tokens are those of all ranks together")
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    global HOST
    torch.cuda.set_device(RANK % torch.cuda.device_count())
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=datetime.timedelta(seconds=180))
    HOST = dist.new_group(backend="gloo")
    group = forge.distributed.group(timeout=90)
    rows, token = [], torch.zeros(1, device="cuda")
    dist.all_reduce(token)
    with torch.no_grad():
        for op in args.ops.split(","):
            for tokens in map(int, args.tokens.split(",")):
                rows += rows_of(op, tokens, args, group, token)
                gc.collect()
                torch.cuda.empty_cache()
    if RANK == 0:
        report(rows, args)
    leave(group)


def leave(group: forge.distributed.Group) -> None:
    """The end, in the one order in which nothing is freed that another rank still uses: kernels end, all ranks know it,
    the GPUs' memory that they share goes with the group of Forge's, then NCCL's, and at last the process. The barriers
    are gloo's: NCCL's is a kernel, for which a rank that is leaving has to be there until the others have read its
    memory. Whatever waits for longer than a minute says where, and ends."""
    faulthandler.dump_traceback_later(60, exit=True)
    torch.cuda.synchronize()
    dist.barrier(group=HOST)
    del group
    forge.distributed.close()
    gc.collect()
    dist.barrier(group=HOST)
    dist.destroy_process_group()
    sys.stdout.flush()
    faulthandler.cancel_dump_traceback_later()


def report(rows: list[list[object]], args: argparse.Namespace) -> None:
    times = {(r[0], r[2], r[3]): r[5] for r in rows if r[5]}
    for op, tokens in dict.fromkeys((r[0], r[2]) for r in rows):
        one, forge_us = times.get((op, tokens, "one")), times.get((op, tokens, "forge"))
        if one and forge_us:
            others = {n: f"{times[op, tokens, n] / forge_us:.2f}x" for n in ("lasp2", "serial", "fla")
                      if (op, tokens, n) in times}  # fmt: skip
            gained = one / forge_us
            what = f"{gained:.2f} times as fast" if args.strong else f"{100 * gained:.1f} %"
            print(f"{op} {tokens}: one {one:.0f} us, {SIZE} ranks {forge_us:.0f} us: {what}", others)
    if not args.csv:
        return
    version = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with args.csv.open("w", newline="") as file:
        file.write(f"# {datetime.date.today()}, {torch.cuda.get_device_name()} x {SIZE}, torch {torch.__version__}, "
                   f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, Forge {forge.__version__} {version}, "
                   f"torchrun {' '.join(sys.argv)}\n")  # fmt: skip
        writer = csv.writer(file)
        writer.writerow(["op", "ranks", "tokens_per_rank", "method", "graph", "us", "rel_difference", "note"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
