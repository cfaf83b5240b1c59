#!/usr/bin/env python3
"""Compiles the kernels that Triton's tuner tries for `vs_fla.py --backward`, on all cores, into TRITON_CACHE_DIR.

    python3 bench/warm_triton.py --ops gla,kda --shapes 4x2048x16x128 [--parts 2] [--limit 300]

The tuner compiles one configuration after the other; a row of vs_fla.py takes minutes of one core in that, and
milliseconds of the GPU. Here every (op, shape) is run by --parts processes, each of which tries its part of every
kernel's configurations, once, and measures nothing: the tuner measures later, alone on the GPU. Tokens do not matter to
what is compiled; shapes of 1024 or more of them are cut to 1024. Prints how each process ended.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time


def try_part(part: int, parts: int) -> None:
    """Triton's tuner runs every `parts`-th configuration once and finds all equally fast."""
    import triton.testing
    from triton.runtime.autotuner import Autotuner

    prune = Autotuner.prune_configs

    def some(self, kwargs):
        every = prune(self, kwargs)
        return every[part::parts] or every[:1]

    def once(call, **_):
        call()
        return [0.0, 0.0, 0.0]

    Autotuner.prune_configs = some
    triton.testing.do_bench = once


def run(op: str, shape: str, part: int, parts: int) -> None:
    os.environ["FLA_DISABLE_BACKEND_DISPATCH"] = "1"
    try_part(part, parts)
    import backward
    import torch
    import vs_fla

    backward.without_guard()
    B, T, H, D = (int(n) for n in shape.split("x"))
    x = {name: t.requires_grad_() for name, t in vs_fla.inputs_of(op, min(T, 1024), torch, B, H, D).items()}
    backward.Step(vs_fla.fla_call(op, x), x, torch.randn_like(x["v"]))()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="simple_gla,delta,gdn,gla,kda")
    parser.add_argument("--shapes", default="4x2048x16x128")
    parser.add_argument("--parts", type=int, default=1, help="processes per op and shape")
    parser.add_argument("--limit", type=float, default=300, help="seconds for all of it")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        op, shape, part, parts = args.child
        return run(op, shape, int(part), int(parts))
    begin, running = time.time(), {}
    for shape in args.shapes.split(","):
        for op in args.ops.split(","):
            for part in range(args.parts):
                command = [sys.executable, __file__, "--child", op, shape, str(part), str(args.parts)]
                running[op, shape, part] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for (op, shape, part), process in running.items():
        try:
            _, said = process.communicate(timeout=max(0.1, begin + args.limit - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
            said = "out of time"
        word = said.strip().splitlines()[-1:] if process.returncode != 0 else []
        print(op, shape, part, f"{time.time() - begin:.0f} s", *word, flush=True)
    return None


if __name__ == "__main__":
    main()
