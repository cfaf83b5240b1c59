"""The programs behind forge.ops. A key names one: a base, and what is done to its inputs before, separated by
semicolons.

    gated_delta_net;l2norm;beta=sigmoid;gate;chunk=32

Bases are the library's variants, or stand below: operators of flash-linear-attention that are no variant of the zoo.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .. import _functions as f
from .. import variants
from .._rewrite import Raw, prepended, retyped
from .._tensor import Tensor
from .._types import SymbTensor
from ..attention import Attention
from ..linear_attention import LinearAttention


def _tensors(**dims: Any) -> dict[str, Any]:
    """bf16 inputs by their dimensions, g in float32."""
    return {n: SymbTensor(d, "float32" if n == "g" else "bfloat16") for n, d in dims.items()}


def normalized_linear_attention() -> LinearAttention:
    """S = S + k v^T, z = z + k, o = scale S^T q / (scale z^T q + 1e-10)."""
    meta = _tensors(q=["T", "H", "K"], k=["T", "H", "K"], v=["T", "H", "V"])
    meta |= {
        "prev_s": SymbTensor(["NS", "H", "K", "V"]),
        "prev_z": SymbTensor(["NS", "H", "K"]),
        "scale": SymbTensor([]),
    }

    def chunk(k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return f.matmul_out_fp32(k.T, v), k.float().sum(0)

    def decay(prev_s: Tensor, prev_z: Tensor, chunk_s: Tensor, chunk_z: Tensor) -> tuple[Tensor, ...]:
        return prev_s + chunk_s, prev_z + chunk_z

    def merge(q: Tensor, k: Tensor, v: Tensor, chunk_s: Tensor, chunk_z: Tensor, scale: Tensor) -> Tensor:
        scores = f.matmul_out_fp32(q, k.T).tril(0)
        o = f.matmul_out_fp32(scores.to(v.dtype), v) + f.matmul_out_fp32(q, chunk_s.to(q.dtype))
        norm = (q.float() * (k.float().cumsum(0) + chunk_z)).sum(1)
        return o * scale / (norm * scale + 1e-10).unsqueeze(1)

    def step(q: Tensor, k: Tensor, v: Tensor, prev_s: Tensor, prev_z: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        s, z = prev_s + f.outer(k, v), prev_z + k
        return s, z, q @ s * scale / ((q * z).sum(0) * scale + 1e-10)

    return LinearAttention(
        meta, chunk_mode=chunk, decay_mode=decay, merge_mode=merge, step=step, name="normalized_linear_attention"
    )


def gated_scan() -> LinearAttention:
    """h = e^g h + x, o = h: flash-linear-attention's HGRN."""
    meta = {"x": SymbTensor(["T", "H", "D"], "bfloat16"), "g": SymbTensor(["T", "H", "D"], "bfloat16")}
    meta |= {"prev_h": SymbTensor(["NS", "H", "D"])}

    def chunk(x: Tensor, g: Tensor) -> Tensor:
        return f.cache_result(f.linear_scan(g.float().exp(), x.float()), "within")[-1]

    def decay(prev_h: Tensor, chunk_state: Tensor, g: Tensor) -> Tensor:
        return prev_h * g.float().sum(0).exp() + chunk_state

    def merge(g: Tensor, within: Tensor, chunk_state: Tensor) -> Tensor:
        return within + g.float().cumsum(0).exp() * chunk_state

    def step(x: Tensor, g: Tensor, prev_h: Tensor) -> tuple[Tensor, ...]:
        h = g.exp() * prev_h + x
        return h, h

    return LinearAttention(meta, chunk_mode=chunk, decay_mode=decay, merge_mode=merge, step=step, name="gated_scan")


def delta_product_of(n: int) -> LinearAttention:
    """S = e^g S, then n times S += beta k (v - S^T k)^T; n rows of k, v, beta per token. o = scale S^T q."""
    rows = f"{n}*T"
    meta = _tensors(q=["T", "H", "K"], k=[rows, "H", "K"], v=[rows, "HV", "V"], g=["T", "HV"], beta=[rows, "HV"])
    meta |= {"prev_s": SymbTensor(["NS", "HV", "K", "V"]), "scale": SymbTensor([])}

    def chunk(k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        G, b = g.cumsum(0), beta.float().unsqueeze(1)
        decay = f.cache_result((G.unsqueeze(1) - G.unsqueeze(0)).exp().tril(0).repeat_interleave(n, 1), "decay")
        A = (f.matmul_out_fp32(k, k.T) * decay.repeat_interleave(n, 0)).tril(-1) * b
        solve = (f.identity(A, A.size(0)) + A).inverse()
        u = f.cache_result(solve @ (v * b), "u")
        f.cache_result(solve @ (k * b * G.exp().repeat_interleave(n, 0).unsqueeze(1)), "w")
        k_end = f.cache_result(k * (g.sum(0) - g.cumsum(0)).exp().repeat_interleave(n, 0).unsqueeze(1), "k_end")
        return k_end.T @ u

    def decay(prev_s: Tensor, chunk_state: Tensor, g: Tensor, k_end: Tensor, w: Tensor) -> Tensor:
        return prev_s * g.sum(0).exp() + chunk_state - k_end.T @ (w @ prev_s)

    def merge(
        q: Tensor, k: Tensor, g: Tensor, decay: Tensor, u: Tensor, w: Tensor, chunk_state: Tensor, scale: Tensor
    ) -> Tensor:
        updates = (u - w @ chunk_state).to(q.dtype)
        scores = f.matmul_out_fp32(q, k.T) * decay
        within = f.matmul_out_fp32(scores.to(q.dtype), updates)
        return (within + f.matmul_out_fp32(q, chunk_state.to(q.dtype)) * g.cumsum(0).exp().unsqueeze(1)) * scale

    def step(
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, prev_s: Tensor, scale: Tensor
    ) -> tuple[Tensor, ...]:
        s = prev_s * g.exp()
        for row in range(n):
            s = s + f.outer(k[row], (v[row] - k[row] @ s) * beta[row])
        return s, q @ s * scale

    return LinearAttention(
        meta, chunk_mode=chunk, decay_mode=decay, merge_mode=merge, step=step, name=f"delta_product_of_{n}"
    )


# ------------------------------------------------------------------------------------------------- raw inputs


def _tokens_only(g: Tensor, token_mask: Tensor) -> Tensor:
    """Padding does not decay."""
    mask = token_mask if g.ndim < 2 else token_mask.unsqueeze(-1)
    return f.where(mask > 0.5, g, 0.0)


def _gate(axes: str, bias: bool, bounded: bool, log: bool) -> Raw:
    """The gate from raw values: -e^A softplus(g + bias), or bound * sigmoid(e^A (g + bias)) which is never below the
    bound."""

    def fn(
        g: Tensor,
        token_mask: Tensor,
        A_log: Tensor | None = None,
        dt_bias: Tensor | None = None,
        lower_bound: Any = None,
    ) -> Tensor:
        x = g if dt_bias is None else g + dt_bias
        A = None if A_log is None else A_log.exp()
        scaled = x if A is None else A * x
        value = lower_bound * scaled.sigmoid() if bounded else -(x.softplus() if A is None else A * x.softplus())
        return _tokens_only(value, token_mask)

    more = {"token_mask": ("mask", "", "f32[C]")}
    if log:
        more["A_log"] = ("head", "f32[HV]", "f32[]")
    if bias:
        more["dt_bias"] = ("head", f"f32[HV{', K' if axes else ''}]", f"f32[{axes}]")
    if bounded:
        more["lower_bound"] = ("scalar", "f32[]", "f32[]")
    return Raw(fn, more)


def _rewritten(text: str, base: str, parts: list[str]) -> str:
    raws: dict[str, Raw] = {}
    for part in parts:
        what, _, value = part.partition("=")
        if what == "l2norm":
            raws |= {n: Raw(lambda x: f.l2norm(x.float())) for n in ("q", "k")}
        elif value == "f32":
            text = retyped(text, what, "f32")
        elif what == "beta":
            factor = {"sigmoid": 1.0, "twice_sigmoid": 2.0}[value]
            raws["beta"] = Raw(
                lambda x, factor=factor: x.float().sigmoid() * factor if factor != 1.0 else x.float().sigmoid()
            )
        elif what == "gate":
            flags = value.split("+")
            raws["g"] = _gate("K" if base == "kda" else "", "bias" in flags, "bounded" in flags, "log" in flags)
    return prepended(text, raws) if raws else text


_OWN = {"normalized_linear_attention": normalized_linear_attention, "gated_scan": gated_scan}


@cache
def program(key: str) -> Attention:
    """The callable that a key names; made once."""
    base, *parts = key.split(";")
    options = {what: value for what, _, value in (p.partition("=") for p in parts) if what in ("chunk",)}
    if base.startswith("delta_product_of="):
        text = delta_product_of(int(base.partition("=")[2])).definition
    else:
        text = _OWN[base]().definition if base in _OWN else getattr(variants, base).definition
    return Attention(_rewritten(text, base, parts), options=options, one_head=base == "gated_scan")
