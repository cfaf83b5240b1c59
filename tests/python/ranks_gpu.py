"""Ranks with a GPU each, under torchrun (test_ranks_gpu.py, or by hand):

    torchrun --nproc-per-node 2 tests/python/ranks_gpu.py           # results, gradients, graphs
    torchrun --nproc-per-node 2 tests/python/ranks_gpu.py kill      # the first rank is killed; the others learn of it

Ranks take the machine's GPUs in turn, so that several may share one. Every rank has all tokens, computes them alone,
and holds its part of what all compute together against that. Prints what went wrong; ends with 0 where nothing did.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import forge
from forge.distributed import GroupError, PeerTimeout

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
B, T, H, K, V = 1, 750, 4, 64, 64


def unit(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(x.float(), dim=-1).to(x.dtype)


def inputs(op: str) -> dict[str, torch.Tensor]:
    random = torch.Generator("cuda").manual_seed(5)

    def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, generator=random, device="cuda", dtype=dtype)

    given = {"q": normal(B, T, H, K), "k": unit(normal(B, T, H, K)), "v": normal(B, T, H, V)}
    # Gates that forget little, so that states of ranks before are seen.
    width = (K,) if op in ("gla", "kda") else ()
    if op != "delta_rule":
        given["g"] = torch.nn.functional.logsigmoid(normal(B, T, H, *width, dtype=torch.float32)) / 64
    if op in ("gated_delta_rule", "kda", "delta_rule"):
        given["beta"] = torch.rand(B, T, H, generator=random, device="cuda").bfloat16()
    return given


OPS = ("simple_gla", "gla", "gated_delta_rule", "delta_rule", "kda")


def expect(what: str, got: torch.Tensor, expected: torch.Tensor, most: float) -> None:
    error = ((got.float() - expected.float()).norm() / expected.float().norm().clamp_min(1e-20)).item()
    if not error < most:
        print(f"rank {RANK}: {what}: relative error {error:.2e}", flush=True)
        os._exit(1)


def differentiated(call, given, weights):
    given = {n: x.detach().clone().requires_grad_() for n, x in given.items()}
    o = call(**given)
    (o.float() * weights).sum().backward()
    return o.detach(), {n: x.grad for n, x in given.items()}


def compared(op: str, group: forge.distributed.Group) -> None:
    given = inputs(op)
    weights = torch.randn(B, T, H, V, generator=torch.Generator("cuda").manual_seed(9), device="cuda")
    function = getattr(forge.ops, f"chunk_{op}")
    for cu_seqlens in (torch.tensor([0, T]), torch.tensor([0, 200, 600, T])):
        cu = cu_seqlens.cuda()
        expected, gradients = differentiated(lambda cu=cu, **x: function(**x, cu_seqlens=cu)[0], given, weights)
        part = forge.distributed.partition(cu_seqlens, group)
        mine, at = {n: x[:, part.tokens] for n, x in given.items()}, part.tokens
        o, got = differentiated(lambda part=part, **x: function(**x, cp_context=part)[0], mine, weights[:, at])
        torch.cuda.synchronize()
        group.check()
        expect(f"{op} output of {cu_seqlens.tolist()}", o, expected[:, at], 1e-2)
        for name, x in got.items():
            expect(f"{op} gradient of {name}, {cu_seqlens.tolist()}", x, gradients[name][:, at], 2e-2)


def whole_sequences(group: forge.distributed.Group) -> None:
    """[B, T, …] with an initial state, and a final one on the last rank; then from a captured graph."""
    given = list(inputs("gla").values())
    state = torch.randn(B, H, K, V, generator=torch.Generator("cuda").manual_seed(11), device="cuda")
    definition = forge.variants.gla.definition
    together = forge.Attention(definition, sp_group=group, defaults={"scale": K**-0.5})
    single = forge.Attention(definition, defaults={"scale": K**-0.5})
    part = slice(T * RANK // SIZE, T * (RANK + 1) // SIZE)
    mine = [x[:, part].contiguous() for x in given]
    expected, last = single(*given, initial_state=state, output_final_state=True)
    o, final = together(*mine, initial_state=state, output_final_state=True)
    expect("output with a state", o, expected[:, part], 1e-2)
    if RANK == SIZE - 1:
        expect("final state", final, last, 1e-2)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        together(*mine, initial_state=state)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        o, _ = together(*mine, initial_state=state)
    for _ in range(20):
        o.zero_()
        graph.replay()
        torch.cuda.synchronize()
        expect("output of a graph", o, expected[:, part], 1e-2)
    group.check()


def end_of_a_rank() -> None:
    """The first rank is killed; the others learn of it in time, and go on alone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends all ranks when one dies
    group = forge.distributed.group(timeout=120)  # one rank compiles what the other waits for
    given = [x[:, :64].contiguous() for x in inputs("gla").values()]
    attention = forge.Attention(forge.variants.gla.definition, sp_group=group, defaults={"scale": 1.0})
    attention(*given)
    group = forge.distributed.group(timeout=5)
    attention = forge.Attention(forge.variants.gla.definition, sp_group=group, defaults={"scale": 1.0})
    for _ in range(3):
        attention(*given)
    torch.cuda.synchronize()
    dist.barrier()
    if RANK == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    try:
        while time.monotonic() - begun < 60:
            attention(*given)
            torch.cuda.synchronize()
            group.check()
    except PeerTimeout as wrong:
        print(f"rank {RANK}: after {time.monotonic() - begun:.1f} s: {wrong}", flush=True)
    else:
        os._exit(3)
    try:
        group.check()
    except GroupError:
        pass
    else:
        os._exit(4)
    o, _ = forge.Attention(forge.variants.gla.definition, defaults={"scale": 1.0})(*given)
    torch.cuda.synchronize()
    assert torch.isfinite(o.float()).all()
    print(f"rank {RANK}: goes on alone", flush=True)
    os._exit(0)


if __name__ == "__main__":
    torch.cuda.set_device(RANK % torch.cuda.device_count())
    dist.init_process_group("gloo")
    if sys.argv[1:] == ["kill"]:
        end_of_a_rank()
    schemes = ["auto"] if SIZE == 2 else ["ring", "scatter-scan-gather", "all-gather"]
    for scheme in [*schemes, "serial"]:
        group = forge.distributed.group(scheme=scheme, timeout=120)
        whole_sequences(group)
        for op in OPS if scheme == schemes[0] else OPS[:1]:
            compared(op, group)
        if RANK == 0:
            print(f"{group!r}: as one rank", flush=True)
    group = forge.distributed.group(shared_memory=False, timeout=120)
    compared("gla", group)
    if RANK == 0:
        print(f"{group!r}: as one rank", flush=True)
    if SIZE > 1:
        dist.barrier()
    os._exit(0)
