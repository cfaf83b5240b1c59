"""Forward and backward together, Forge beside flash-linear-attention: `vs_fla.py --backward`. Per row (op, shape):

    *_us         median of --runs eager calls of both passes, between two events, the L2 cache overwritten before
    *_fwd_us     … of the forward pass alone
    *_peak_mib   the most memory of PyTorch's during one, beyond its arguments
    worst_grad   the largest rms(forge - fla) / rms(fla) over the gradients, and whose it is

Gradients are of sum(o * do) with a random do, for all tensors. hgrn has one head of H x D channels. FLA refuses its
gated backward kernels (chunk_bwd_dqkwg with gates) with Triton from 3.4 to 3.7.0 on Hopper, as their results may be
wrong; `--no-fla-guard` runs them all the same, for their times: `worst_grad` then says how wrong they are.
"""

from __future__ import annotations

import statistics
from typing import Any

COLUMNS = ["op", "shape", "fla_us", "forge_us", "ratio", "fla_fwd_us", "forge_fwd_us", "fla_peak_mib", "forge_peak_mib",
           "worst_grad", "of", "forge_backward", "error"]  # fmt: skip
#: flash-linear-attention's own (B, T, H, D), benchmarks/ops/registry.py, and one long sequence.
SHAPES = "1x8192x96x128,2x16384x16x128,4x2048x16x128,4x4096x64x128,8x2048x32x256,8x1024x8x64,1x32768x32x128"


def without_guard() -> None:
    """FLA's check for Triton versions whose gated gradients are wrong on Hopper sees a later version."""
    import fla.ops.common.chunk_o as module

    module.TRITON_ABOVE_3_7_1 = True


class Step:
    """A forward and a backward pass."""

    def __init__(self, forward: Any, x: dict[str, Any], do: Any) -> None:
        self._forward, self._x, self._do = forward, x, do

    def forward(self) -> Any:
        return self._forward()

    def __call__(self) -> None:
        for t in self._x.values():
            t.grad = None
        self._forward().backward(self._do)

    def gradients(self) -> dict[str, Any]:
        self()
        return {name: t.grad.float() for name, t in self._x.items()}


def median_us(call: Any, runs: int, torch: Any) -> float:
    flush = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    times = []
    for run in range(runs + 3):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if run >= 3:
            times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def peak_mib(call: Any, torch: Any) -> float:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def row_of(op: str, shape: str, args: Any, torch: Any, inputs_of: Any, forwards: dict[str, Any]) -> dict[str, Any]:
    """`forwards`: by side, what makes a function of no arguments that calls the operator, from its name and inputs."""
    row: dict[str, Any] = {"op": op, "shape": shape}
    B, T, H, D = (int(n) for n in shape.split("x"))
    channels = {"channels": H * D} if op == "hgrn" else {}
    x = {name: t.requires_grad_() for name, t in inputs_of(op, T, torch, B, H, D, **channels).items()}
    do = torch.randn_like(x["x" if op == "hgrn" else "v"])
    errors, gradients = [], {}
    if args.no_fla_guard:
        without_guard()
    for side, make in forwards.items():
        try:
            step = Step(make(op, x), x, do)
            gradients[side] = step.gradients()
            row[f"{side}_us"] = median_us(step, args.runs, torch)
            with torch.no_grad():
                row[f"{side}_fwd_us"] = median_us(step.forward, args.runs, torch)
            row[f"{side}_peak_mib"] = peak_mib(step, torch)
        except Exception as error:  # noqa: BLE001
            errors.append(f"{side}: {error!r}")
    if len(gradients) == 2:
        fla, forge = gradients["fla"], gradients["forge"]
        off = {n: ((forge[n] - fla[n]).square().mean().sqrt() / fla[n].square().mean().sqrt()).item() for n in fla}
        row["of"] = max(off, key=lambda n: off[n] if off[n] == off[n] else float("inf"))
        row["worst_grad"] = off[row["of"]]
    if "fla_us" in row and "forge_us" in row:
        row["ratio"] = row["fla_us"] / row["forge_us"]
    row["error"] = "; ".join(errors).replace("\n", " ")[:400]
    return row
