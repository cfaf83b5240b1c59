"""Programs written without care for element types, as on a page: everything in 16 bits, products of mixed types,
results cached by the way. They mean what PyTorch would compute, and come out right to 16 bits."""

import ml_dtypes
import numpy as np
import pytest

import forge
from forge import ConstExpr, LinearAttention, SymbTensor, Tensor
from programs import random_inputs, recurrence
from reference import relative_rms

H, K, V = ConstExpr("H", 2), ConstExpr("K", 32), ConstExpr("V", 32)


def meta(state_dtype: str, **more) -> dict:
    return {
        "q": SymbTensor(["T", H, K], dtype="bfloat16"),
        "k": SymbTensor(["T", H, K], dtype="bfloat16"),
        "v": SymbTensor(["T", H, V], dtype="bfloat16"),
        **more,
        "scale": 0.25,
        "prev_s": SymbTensor(["NS", H, K, V], dtype="float32"),
        "chunk_state": SymbTensor(["NC", H, K, V], dtype=state_dtype),
    }


def run(name: str, attn: LinearAttention, dtype) -> tuple[float, float]:
    x = {n: a if n == "g" else a.astype(dtype) for n, a in random_inputs(name, 1, 200, 2, 32, 32).items()}
    o, final = attn(**x, output_final_state=True)
    wanted_o, wanted_final = recurrence(name, x)
    return relative_rms(o, wanted_o), relative_rms(final, wanted_final)


@pytest.mark.parametrize("state_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e-5), (ml_dtypes.bfloat16, 2e-2)])
def test_scalar_gla(state_dtype, dtype, limit):
    def chunk_mode(k: Tensor, v: Tensor, g: Tensor):
        g_cumsum = g.cumsum(dim=0)
        decay = (g.sum(dim=0) - g_cumsum).exp()
        return (k.permute([1, 0]) * decay.unsqueeze(0)).to(v.dtype) @ v

    def decay_mode(prev_s: Tensor, chunk_state: Tensor, g: Tensor):
        return prev_s * g.sum(dim=0).exp() + chunk_state

    def merge_mode(q: Tensor, k: Tensor, v: Tensor, g: Tensor, chunk_state: Tensor, scale: Tensor):
        G = g.cumsum(0)
        p = ((q @ k.T) * (G[..., None] - G[None, ...]).exp()).tril(0)
        o = p.to(v.dtype) @ v + (q @ chunk_state.to(q.dtype)) * G.exp()[..., None]
        return (o * scale).to(q.dtype)

    attn = LinearAttention(
        input_meta=meta(state_dtype, g=SymbTensor(["T", H], dtype="float32")),
        sp_group=None, enable_aot=False, code_dir=None, chunk_mode=chunk_mode, decay_mode=decay_mode,
        merge_mode=merge_mode,
    )  # fmt: skip
    assert max(run("scalar_gla", attn, dtype)) < limit


@pytest.mark.parametrize("beta_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("state_dtype", ["float32", "bfloat16"])
def test_delta_net(state_dtype, beta_dtype):
    def chunk_mode(k: Tensor, v: Tensor, beta: Tensor):
        k_beta, v_beta = k * beta[..., None], v * beta[..., None]
        A = (k_beta @ k.T).tril(-1)
        T = (forge.identity(A, A.size(0)) + A).inverse()
        u = T @ v_beta
        w = T @ k_beta
        forge.cache_result(u, "u")
        forge.cache_result(w, "w")
        return k.T @ u

    def decay_mode(prev_s: Tensor, chunk_state: Tensor, k: Tensor, w: Tensor):
        return prev_s + chunk_state - k.T @ (w @ prev_s)

    def merge_mode(q: Tensor, k: Tensor, u: Tensor, w: Tensor, chunk_state: Tensor, scale: Tensor):
        u_i = u - w @ chunk_state
        return (q @ chunk_state + forge.matmul_out_fp32(q, k.T).tril(0) @ u_i) * scale

    attn = LinearAttention(input_meta=meta(state_dtype, beta=SymbTensor(["T", H], dtype=beta_dtype)),
    chunk_mode=chunk_mode, decay_mode=decay_mode,
                           merge_mode=merge_mode)  # fmt: skip
    if beta_dtype == "bfloat16":
        assert max(run("delta_net", attn, np.float32)) < 1e-5
        assert max(run("delta_net", attn, ml_dtypes.bfloat16)) < 3e-2
        return
    x = random_inputs("delta_net", 1, 200, 2, 32, 32)
    half = {n: a if n == "beta" else a.astype(ml_dtypes.bfloat16) for n, a in x.items()}
    assert relative_rms(attn(**half)[0], recurrence("delta_net", half)[0]) < 3e-2


def test_one_size_for_keys_and_values():
    D = ConstExpr("D", 32)
    dims = {n: SymbTensor(["T", H, D], dtype="bfloat16") for n in "qkv"}
    attn = LinearAttention(
        input_meta={**dims, "prev_s": SymbTensor(["NS", H, D, D]), "scale": 0.25}, chunk_mode=lambda k, v: k.T @ v,
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=lambda q, k, v, chunk_state, scale: ((q @ k.T).tril() @ v + q @ chunk_state) * scale,
    )  # fmt: skip
    assert max(run("linear", attn, np.float32)) < 1e-5


def test_plain_numbers_as_sizes():
    dims = {n: SymbTensor(["T", 2, 32], dtype="bfloat16") for n in "qkv"}
    attn = LinearAttention(
        input_meta={**dims, "prev_s": SymbTensor(["NS", 2, 32, 32]), "scale": 0.25}, chunk_mode=lambda k, v: k.T @ v,
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=lambda q, k, v, chunk_state, scale: ((q @ k.T).tril() @ v + q @ chunk_state) * scale,
    )  # fmt: skip
    assert max(run("linear", attn, np.float32)) < 1e-5
    with pytest.raises(forge.RuntimeError, match="argument 'q'"):
        attn(**random_inputs("linear", 1, 20, 2, 16, 16))


def test_several_states_by_name():
    """A normaliser beside the memory; functions return dictionaries."""
    dims = {"q": "K", "k": "K", "v": "V"}
    input_meta = {n: SymbTensor(["T", "H", d], dtype="bfloat16") for n, d in dims.items()}
    input_meta |= {"prev_s": SymbTensor(["NS", "H", "K", "V"]), "prev_z": SymbTensor(["NS", "H", "K"])}

    def merge(q, k, v, chunk_s, chunk_z):
        norm = (q.float() * (k.float().cumsum(0) + chunk_z)).sum(-1, keepdim=True)
        return {"o": (q @ k.T).tril() @ v + q @ chunk_s, "norm": norm}

    attn = LinearAttention(
        input_meta, chunk_mode=lambda k, v: {"chunk_s": k.T @ v, "chunk_z": k.float().sum(0)}, decay_mode=lambda prev_s,
        prev_z, chunk_s, chunk_z: {"prev_z": prev_z + chunk_z, "prev_s": prev_s + chunk_s}, merge_mode=merge,
    )  # fmt: skip
    x = random_inputs("linear", 1, 100, 2, 16, 12)
    (o, norm), (s, z) = attn(**x, output_final_state=True)
    wanted_o, wanted_s = recurrence("linear", x, scale=1.0)
    assert relative_rms(o, wanted_o) < 1e-5 and relative_rms(s, wanted_s) < 1e-5
    sums = np.cumsum(x["k"].astype(np.float64), axis=1)
    assert relative_rms(norm[..., 0], (x["q"] * sums).sum(-1)) < 1e-5 and relative_rms(z, sums[:, -1]) < 1e-5
    (again, _), _ = attn(**x, initial_state={"s": s, "z": z})
    assert relative_rms(again, recurrence("linear", x, wanted_s, scale=1.0)[0]) < 1e-5
