"""A rank of test_distributed: python ranks.py RANK SIZE STORE. Prints what went wrong; ends with 0 where nothing did.

Every rank has all tokens, computes them alone, and holds its part of what all compute together against that.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist

import forge
from forge.distributed import GroupError, PeerTimeout

RANK, SIZE = int(sys.argv[1]), int(sys.argv[2])
B, T, H, K, V = 1, 75, 2, 12, 8
NAMES = ("q", "k", "v", "g")


def inputs() -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(B, T, H, n, generator=random) for n in (K, K, V))
    return [q, k * K**-0.5, v, -torch.rand(B, T, H, K, generator=random)]


def expect(what: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    error = (got - expected).norm() / expected.norm().clamp_min(1e-20)
    if not error < 1e-4:
        print(f"rank {RANK}: {what}: relative error {error:.2e}")
        sys.exit(1)


def differentiated(call, given: list[torch.Tensor], weights: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The output and the gradients of its weighted sum."""
    given = [x.detach().clone().requires_grad_() for x in given]
    o = call(*given)
    (o * weights).sum().backward()
    return o.detach(), [x.grad for x in given]


def whole_sequences(group: forge.distributed.Group) -> None:
    """[B, T, …] over all ranks, by LinearAttention(sp_group=…), with an initial state and gradients."""
    given, weights = inputs(), torch.randn(B, T, H, V, generator=torch.Generator().manual_seed(9))
    state = torch.randn(B, H, K, V, generator=torch.Generator().manual_seed(11))
    alone = forge.variants.gla
    together = forge.Attention(alone.definition, sp_group=group, defaults={"scale": K**-0.5})
    single = forge.Attention(alone.definition, defaults={"scale": K**-0.5})
    part = slice(T * RANK // SIZE, T * (RANK + 1) // SIZE)
    expected, gradients = differentiated(lambda *x: single(*x, initial_state=state)[0], given, weights)
    o, mine = differentiated(
        lambda *x: together(*x, initial_state=state)[0], [x[:, part] for x in given], weights[:, part]
    )
    expect("output", o, expected[:, part])
    for name, got, all_of in zip(NAMES, mine, gradients):
        expect(f"gradient of {name}", got, all_of[:, part])
    _, final = together(*(x[:, part] for x in given), initial_state=state, output_final_state=True)
    if RANK == SIZE - 1:
        expect("final state", final, single(*given, initial_state=state, output_final_state=True)[1])
    try:
        together(*(x[:, part] for x in given), cu_seqlens=torch.tensor([0, 5]))
    except forge.RuntimeError as wrong:
        assert "expected partition=" in str(wrong), wrong
    else:
        sys.exit("cu_seqlens over ranks were taken")


def packed_sequences(group: forge.distributed.Group) -> None:
    """Packed ones that cross borders, by forge.ops with cp_context, its own and of FLA's form."""
    given, weights = inputs(), torch.randn(B, T, H, V, generator=torch.Generator().manual_seed(9))
    cu_seqlens = torch.tensor([0, 20, 60, T])
    expected, gradients = differentiated(lambda *x: forge.ops.chunk_gla(*x, cu_seqlens=cu_seqlens)[0], given, weights)
    for shards in (None, [0, 30, 30, T]):
        part = forge.distributed.partition(cu_seqlens, group, shards)
        contexts = [part]
        if shards is None:
            contexts.append(SimpleNamespace(
                group=dist.group.WORLD, cu_seqlens=part.cu_seqlens.int(), is_first_rank=not part.has_prev,
                is_last_rank=not part.has_next, layout="contiguous",
            ))  # fmt: skip
        for context in contexts:
            o, mine = differentiated(
                lambda *x, c=context: forge.ops.chunk_gla(*x, cp_context=c)[0],
                [x[:, part.tokens] for x in given], weights[:, part.tokens],
            )  # fmt: skip
            expect(f"packed output of {context}", o, expected[:, part.tokens])
            for name, got, all_of in zip(NAMES, mine, gradients):
                expect(f"packed gradient of {name}", got, all_of[:, part.tokens])


def end_of_a_rank() -> None:
    """The last rank ends; the others learn of it, and go on alone."""
    group = forge.distributed.group(timeout=20)
    given = [x[:, :20] for x in inputs()]
    attention = forge.Attention(forge.variants.gla.definition, sp_group=group, defaults={"scale": 1.0})
    attention(*given)
    if RANK == 0:
        os._exit(0)
    try:
        for _ in range(1000):
            attention(*given)
    except PeerTimeout as wrong:
        assert "rank 0" in str(wrong), wrong
    else:
        sys.exit("nobody missed rank 0")
    try:
        group.check()
    except GroupError:
        pass
    else:
        sys.exit("the group is as good as before")
    forge.Attention(forge.variants.gla.definition, defaults={"scale": 1.0})(*given)
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=RANK, world_size=SIZE)
    for group in (forge.distributed.group(), forge.distributed.group(shared_memory=False)):
        whole_sequences(group)
        packed_sequences(group)
    assert "share memory" in repr(forge.distributed.group(shared_memory=True))
    end_of_a_rank()
