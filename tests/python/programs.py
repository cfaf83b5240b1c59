"""Variants as a researcher writes them in Python, and the recurrences that they mean, token by token in float64."""

from __future__ import annotations

import numpy as np

import forge
from forge import ConstExpr, LinearAttention, SymbTensor


def make(
    inputs: dict,
    chunk_mode,
    decay_mode,
    merge_mode,
    state=("K", "V"),
    scale=None,
    heads="H",
    sizes=None,
    chunk_dtype="float32",
    **more,
):
    """A variant with inputs {name: (dims after the heads, dtype)}; `sizes` turns symbols into ConstExpr."""

    def dim(symbol):
        return ConstExpr(symbol, sizes[symbol]) if sizes and symbol in sizes else symbol

    meta = {n: SymbTensor(["T", dim(heads), *map(dim, dims)], dtype=dtype) for n, (dims, dtype) in inputs.items()}
    meta["prev_s"] = SymbTensor(["NS", dim(heads), *map(dim, state)], dtype="float32")
    meta["chunk_state"] = SymbTensor(["NC", dim(heads), *map(dim, state)], dtype=chunk_dtype)
    if scale is not None:
        meta["scale"] = scale
    how = {"sp_group": None, "enable_aot": False, **more}
    return LinearAttention(input_meta=meta, chunk_mode=chunk_mode, decay_mode=decay_mode, merge_mode=merge_mode, **how)


QKV = {"q": (["K"], "bfloat16"), "k": (["K"], "bfloat16"), "v": (["V"], "bfloat16")}


def scalar_gla(**how):
    """S = e^g S + k v^T, o = scale S^T q."""

    def chunk_mode(k, v, g):
        decay = (g.sum(dim=0) - g.cumsum(dim=0)).exp()
        return forge.matmul_out_fp32((k * decay[..., None]).to(v.dtype).T, v)

    def decay_mode(prev_s, chunk_state, g):
        return prev_s * g.sum(dim=0).exp() + chunk_state

    def merge_mode(q, k, v, g, chunk_state, scale):
        G = g.cumsum(dim=0)
        scores = forge.matmul_out_fp32(q, k.permute([1, 0])) * (G[..., None] - G[None, ...]).exp()
        within = forge.matmul_out_fp32(scores.tril(0).to(v.dtype), v)
        carried = forge.matmul_out_fp32(q, chunk_state.to(q.dtype)) * G.exp()[..., None]
        return (within + carried) * scale

    return make({**QKV, "g": ([], "float32")}, chunk_mode, decay_mode, merge_mode, scale=0.25, **how)


def vector_gla(**how):
    """S = diag(e^g) S + k v^T, o = scale S^T q, written with exp(G) and exp(-G) as on paper."""

    def chunk_mode(k, v, g):
        to_end = (g.sum(0) - g.cumsum(0)).exp()
        return forge.matmul_out_fp32((k * to_end).to(v.dtype).T, v)

    def decay_mode(prev_s, chunk_state, g):
        return prev_s * g.sum(0).exp().unsqueeze(1) + chunk_state

    def merge_mode(q, k, v, g, chunk_state, scale):
        G = g.cumsum(0)
        scores = ((q * G.exp()) @ (k * (-G).exp()).T).tril(0)
        within = forge.matmul_out_fp32(scores.to(v.dtype), v)
        return (within + forge.matmul_out_fp32((q * G.exp()).to(q.dtype), chunk_state.to(q.dtype))) * scale

    return make({**QKV, "g": (["K"], "float32")}, chunk_mode, decay_mode, merge_mode, scale=0.25, **how)


def delta_net(**how):
    """S = (I - beta k k^T) S + beta k v^T, o = scale S^T q."""

    def chunk_mode(k, v, beta):
        b, wide = beta.to(forge.float32)[..., None], forge.cache_result(k.to(forge.float32), "wide")
        A = forge.matmul_out_fp32(k, k.T).tril(-1) * b
        solve = (forge.identity(A, A.size(0)) + A).inverse()
        u = forge.cache_result(solve @ (v * b), "u")
        forge.cache_result(solve @ (k * b), "w")
        return wide.T @ u

    def decay_mode(prev_s, chunk_state, wide, w):
        return prev_s + chunk_state - wide.T @ (w @ prev_s)

    def merge_mode(q, k, u, w, chunk_state, scale):
        updates = (u - w @ chunk_state).to(q.dtype)
        scores = forge.matmul_out_fp32(q, k.T).tril(0)
        return (
            forge.matmul_out_fp32(scores.to(q.dtype), updates) + forge.matmul_out_fp32(q, chunk_state.to(q.dtype))
        ) * scale

    return make({**QKV, "beta": ([], "bfloat16")}, chunk_mode, decay_mode, merge_mode, scale=0.25, **how)


def gated_delta_net(**how):
    """S = e^g (I - beta k k^T) S + beta k v^T, o = scale S^T q."""

    def chunk_mode(k, v, g, beta):
        G, b = g.cumsum(dim=0), beta.to(forge.float32).unsqueeze(1)
        A = (forge.matmul_out_fp32(k, k.T) * (G.unsqueeze(1) - G.unsqueeze(0)).exp()).tril(-1) * b
        solve = (forge.identity(A, A.size(0)) + A).inverse()
        u = forge.cache_result(solve @ (v * b), "u")
        forge.cache_result(solve @ (k * b * G.exp().unsqueeze(1)), "w")
        k_end = forge.cache_result(k * (g.sum(dim=0) - g.cumsum(dim=0)).exp().unsqueeze(1), "k_end")
        return k_end.T @ u

    def decay_mode(prev_s, chunk_state, g, k_end, w):
        return prev_s * g.sum(dim=0).exp() + chunk_state - k_end.T @ (w @ prev_s)

    def merge_mode(q, k, g, u, w, chunk_state, scale):
        G = g.cumsum(dim=0)
        updates = (u - w @ chunk_state).to(q.dtype)
        scores = forge.matmul_out_fp32(q, k.T) * (G.unsqueeze(1) - G.unsqueeze(0)).exp()
        within = forge.matmul_out_fp32(scores.tril(0).to(q.dtype), updates)
        return (within + forge.matmul_out_fp32(q, chunk_state.to(q.dtype)) * G.exp().unsqueeze(1)) * scale

    inputs = {**QKV, "g": ([], "float32"), "beta": ([], "bfloat16")}
    return make(inputs, chunk_mode, decay_mode, merge_mode, scale=0.25, **how)


def hgrn(**how):
    """h = e^g h + (1 - e^g) v, o = h q: a vector state."""

    def chunk_mode(v, g):
        alpha = g.exp()
        return forge.cache_result(forge.linear_scan(alpha, (1.0 - alpha) * v), "within")[-1]

    def decay_mode(prev_s, chunk_state, g):
        return prev_s * g.sum(0).exp() + chunk_state

    def merge_mode(q, g, within, chunk_state):
        return (within + g.cumsum(0).exp() * chunk_state) * q

    inputs = {"q": (["K"], "bfloat16"), "v": (["K"], "bfloat16"), "g": (["K"], "float32")}
    return make(inputs, chunk_mode, decay_mode, merge_mode, state=("K",), **how)


PROGRAMS = {
    "scalar_gla": scalar_gla,
    "vector_gla": vector_gla,
    "delta_net": delta_net,
    "gated_delta_net": gated_delta_net,
    "hgrn": hgrn,
}


def step(name: str, S, x: dict, scale: float):
    """One token of one head: (next state, output)."""
    if name == "hgrn":
        S = np.exp(x["g"]) * S + (1 - np.exp(x["g"])) * x["v"]
        return S, S * x["q"]
    if "g" in x:
        S = S * (np.exp(x["g"])[:, None] if np.ndim(x["g"]) else np.exp(x["g"]))
    new = (x["v"] - x["k"] @ S) * x["beta"] if "beta" in x else x["v"]
    S = S + np.outer(x["k"], new)
    return S, scale * (x["q"] @ S)


def recurrence(name: str, x: dict, initial=None, offsets=None, scale: float = 0.25):
    """(o, final states) in float64 of [B, T, H, …] arrays (or of packed ones, [1, T, H, …] with offsets)."""
    wide = {n: np.asarray(a, dtype=np.float64) for n, a in x.items()}
    B, T, H = wide["v"].shape[:3]
    spans = [(0, a, b) for a, b in zip(offsets, offsets[1:])] if offsets is not None else [(b, 0, T) for b in range(B)]
    V, K = wide["v"].shape[-1], wide["q"].shape[-1]
    shape = (K,) if name == "hgrn" else (K, V)
    o, final = np.zeros((B, T, H, V)), np.zeros((len(spans), H, *shape))
    for n, (b, begin, end) in enumerate(spans):
        for h in range(H):
            S = np.zeros(shape) if initial is None else np.asarray(initial[n, h], dtype=np.float64)
            for t in range(begin, end):
                S, o[b, t, h] = step(name, S, {key: a[b, t, h] for key, a in wide.items()}, scale)
            final[n, h] = S
    return o, final


def random_inputs(name: str, B: int, T: int, H: int, K: int, V: int, seed: int = 0) -> dict:
    """float32 inputs: unit keys, gates from logsigmoid, betas in (0, 1)."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape, np.float32)

    def sigmoid(x):
        return (1 / (1 + np.exp(-x))).astype(np.float32)

    if name == "hgrn":
        return {"q": normal(B, T, H, K), "v": normal(B, T, H, K), "g": np.log(sigmoid(normal(B, T, H, K)))}
    x = {"q": normal(B, T, H, K), "k": normal(B, T, H, K), "v": normal(B, T, H, V)}
    x["k"] /= np.linalg.norm(x["k"], axis=-1, keepdims=True)
    if name in ("scalar_gla", "gated_delta_net"):
        x["g"] = np.log(sigmoid(normal(B, T, H)))
    if name == "vector_gla":
        x["g"] = np.log(sigmoid(normal(B, T, H, K)))
    if "delta" in name:
        x["beta"] = sigmoid(normal(B, T, H))
    return x
