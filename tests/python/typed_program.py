"""A program as users write them, for type checkers: mypy --strict and pyright have nothing to say of it
(test_types.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

import forge
from forge import Attention, ConstExpr, LinearAttention, SymbTensor, Tensor, ops

K = ConstExpr("K", 64)
meta = {
    "q": SymbTensor(["T", "H", K], dtype=forge.bfloat16),
    "k": SymbTensor(["T", "H", K], dtype="bfloat16"),
    "v": SymbTensor(["T", "H", "V"], dtype=np.float16),
    "g": SymbTensor(["T", "H"], range=(-1, 0), pad=0),
    "prev_s": SymbTensor(["NS", "H", K, "V"]),
    "scale": K**-0.5,
}


def chunk(k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    decay = (g.sum(0) - forge.cumsum(g, 0)).exp()
    return forge.matmul_out_fp32((k * decay[..., None]).to(v.dtype).T, v)


def decay(prev_s: Tensor, chunk_state: Tensor, g: Tensor) -> Tensor:
    return forge.exp(g.sum(0)) * prev_s + chunk_state


def merge(q: Tensor, k: Tensor, v: Tensor, g: Tensor, chunk_state: Tensor, scale: Tensor) -> Tensor:
    G = g.cumsum(0)
    scores = forge.matmul_out_fp32(q, k.T) * (G.unsqueeze(1) - G.unsqueeze(0)).exp()
    within = scores.tril().to(v.dtype) @ v
    carried = q @ chunk_state.to(q.dtype) * G.exp()[:, None]
    return forge.where(q.sum(1, keepdim=True) > 0, within + carried, -carried / 2) * scale


attn = LinearAttention(meta, chunk_mode=chunk, decay_mode=decay, merge_mode=merge, name="typed", options={"chunk": 64})
x: dict[str, Any] = {n: np.zeros((1, 10, 2, 64), np.float32) for n in "qkv"}
o, state = attn(**x, g=np.zeros((1, 10, 2), np.float32), output_final_state=True)
name: str = attn.name
text: str = attn.explain(on="h200", V=64)
predicted: float = attn.cost(on="h200", V=64).seconds
report: bool = attn.check(V=32).ok
seconds: float = attn.benchmark(T=64, V=64).seconds
ready: Attention = forge.variants.gated_delta_net
names: list[str] = forge.variants.names()
o, state = ops.chunk_gla(x["q"], x["k"], x["v"], x["q"], scale=None, output_final_state=True)
try:
    o, _ = ready(**x)
except (forge.RuntimeError, forge.CompileError, TypeError) as error:
    print(error)
