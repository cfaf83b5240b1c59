"""Forge against the same chunked algorithm in PyTorch eager, on the CPU: one process, the same inputs, outputs
compared.

Run it through bench/peers/run, which installs PyTorch into a virtual environment of its own. Shapes: q, k [T, H, K],
v, o [T, H, V], g, beta [T, H], float32; g is a natural logarithm, at most 0. Times are medians, in milliseconds.
"""

import argparse
import csv
import ctypes
import datetime
import pathlib
import platform
import statistics
import time
from functools import partial

import torch

CHUNK = 64


def chunks(x, heads):
    """[T, H, …] -> [H, T / C, C, …]."""
    return x.unflatten(0, (-1, CHUNK)).movedim(2, 0)


def scalar_gla(q, k, v, g, beta, scale):
    """S_t = exp(g_t) S_{t-1} + k_t v_t^T, o_t = scale S_t^T q_t (Dao and Gu 2024, section 6), by chunks."""
    q, k, v, g = (chunks(x, q.shape[1]) for x in (q, k, v, g))
    total = g.cumsum(-1)
    mask = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~mask, -torch.inf).exp()
    within = ((q @ k.mT) * decay) @ v
    added = (k * (total[..., -1:] - total).exp()[..., None]).mT @ v
    whole = total[..., -1].exp()[..., None, None]
    state = torch.zeros_like(added[:, 0])
    before = torch.empty_like(added)
    for c in range(added.shape[1]):
        before[:, c] = state
        state = state * whole[:, c] + added[:, c]
    out = (within + (q * total.exp()[..., None]) @ before) * scale
    return out.movedim(0, 2).flatten(0, 1), state


def gated_delta_net(q, k, v, g, beta, scale):
    """S_t = exp(g_t) S_{t-1} + beta_t k_t (v_t - exp(g_t) S_{t-1}^T k_t)^T (Yang et al. 2024), by chunks in WY form."""
    q, k, v, g, beta = (chunks(x, q.shape[1]) for x in (q, k, v, g, beta))
    total = g.cumsum(-1)
    mask = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~mask, -torch.inf).exp()
    bound = (beta[..., None] * (k @ k.mT) * decay).tril(-1) + torch.eye(CHUNK)
    rhs = torch.cat([beta[..., None] * v, (beta * total.exp())[..., None] * k], -1)
    u, w = torch.linalg.solve_triangular(bound, rhs, upper=False, unitriangular=True).split(
        [v.shape[-1], k.shape[-1]], -1
    )
    scores = (q @ k.mT) * decay
    to_end = (k * (total[..., -1:] - total).exp()[..., None]).mT
    whole = total[..., -1].exp()[..., None, None]
    reading = q * total.exp()[..., None]
    state = torch.zeros(k.shape[0], k.shape[-1], v.shape[-1])
    out = torch.empty_like(v)
    for c in range(k.shape[1]):
        new = u[:, c] - w[:, c] @ state
        out[:, c] = reading[:, c] @ state + scores[:, c] @ new
        state = state * whole[:, c] + to_end[:, c] @ new
    return (out * scale).movedim(0, 2).flatten(0, 1), state


def pointer(x):
    return ctypes.c_void_p(x.data_ptr())


def forge_call(library, variant, tensors, scale, threads):
    q, k, v, g, beta = tensors
    tokens, heads, keys = q.shape
    handle = library.peer_compile(variant.encode(), tokens, heads, keys, v.shape[-1], threads)
    if not handle:
        raise SystemExit(f"forge could not compile {variant}")
    out, state = torch.empty_like(v), torch.empty(heads, keys, v.shape[-1])
    uses_beta = pointer(beta) if variant == "gated_delta_net" else None

    def call():
        library.peer_run(
            handle, pointer(q), pointer(k), pointer(v), pointer(g), uses_beta, scale, pointer(out), pointer(state)
        )
        return out, state

    return call


def median_ms(call, runs):
    call()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="libforge_peer.so")
    parser.add_argument("--csv", type=pathlib.Path, help="where to write the result")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--size", type=int, default=128, help="K and V")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=9)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    library = ctypes.CDLL(args.library)
    library.peer_compile.restype = ctypes.c_void_p
    library.peer_compile.argtypes = [ctypes.c_char_p] + [ctypes.c_int64] * 4 + [ctypes.c_int]
    library.peer_run.restype = ctypes.c_double
    library.peer_run.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_double] + [ctypes.c_void_p] * 2

    shape = (args.tokens, args.heads)
    q, k = (torch.nn.functional.normalize(torch.randn(*shape, args.size), dim=-1) for _ in range(2))
    v, g, beta = torch.randn(*shape, args.size), torch.nn.functional.logsigmoid(torch.randn(shape)), torch.rand(shape)
    scale = args.size**-0.5
    rows = []
    for name, eager in (("scalar_gla", scalar_gla), ("gated_delta_net", gated_delta_net)):
        ours = forge_call(library, name, (q, k, v, g, beta), scale, args.threads)
        theirs = partial(eager, q, k, v, g, beta, scale)
        errors = [((a - b).square().mean().sqrt() / b.square().mean().sqrt()).item() for a, b in zip(ours(), theirs())]
        if not max(errors) < 1e-4:
            raise SystemExit(f"{name}: outputs differ: relative RMS {errors}")
        t_forge, t_torch = median_ms(ours, args.runs), median_ms(theirs, args.runs)
        rows.append(
            [
                name,
                *shape,
                args.size,
                f"{t_forge:.2f}",
                f"{t_torch:.2f}",
                f"{t_torch / t_forge:.2f}",
                f"{max(errors):.1e}",
            ]
        )
        print(
            f"{name:18s} Forge {t_forge:8.2f} ms   PyTorch {torch.__version__} eager {t_torch:8.2f} ms   "
            f"{t_torch / t_forge:5.2f} times   relative RMS {max(errors):.1e}"
        )
    if args.csv:
        with args.csv.open("w", newline="") as file:
            file.write(
                f"# {datetime.date.today()}, {platform.processor() or platform.machine()}, {args.threads} threads, "
                f"float32, PyTorch {torch.__version__}; bench/peers/run\n"
            )
            csv.writer(file).writerows(
                [["variant", "T", "H", "K=V", "forge_ms", "torch_eager_ms", "ratio", "relative_rms"], *rows]
            )


if __name__ == "__main__":
    main()
