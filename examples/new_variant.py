"""A researcher's first hour: a variant that is in no list, from its idea to a checked and measured kernel.

The idea, "sleepy memory": a token writes as much as it is awake, and the memory forgets only while it is written to.
With a in [0, 1], S_t = (1 - a_t)^r S_{t-1} + a_t k_t v_t^T and o_t = S_t^T q_t, where r is one rate per head.

    python examples/new_variant.py [--full]
"""

import sys

import numpy as np

import forge
from forge import ConstExpr, LinearAttention, SymbTensor

# 1. What it works on. T is the token axis, the axis after it the heads; the numbers are this model's sizes.
H, K, V = ConstExpr("H", 4), ConstExpr("K", 64), ConstExpr("V", 64)
input_meta = {
    "q": SymbTensor(["T", H, K], dtype="bfloat16"),
    "k": SymbTensor(["T", H, K], dtype="bfloat16"),
    "v": SymbTensor(["T", H, V], dtype="bfloat16"),
    "beta": SymbTensor(["T", H], dtype="float32"),  # how awake a token is
    "slope": SymbTensor([H], dtype="float32"),  # one rate per head
    "prev_s": SymbTensor(["NS", H, K, V], dtype="float32"),
}


# 2. The formula, token by token: the specification. It is never run in anger, but everything else is held against it.
def step(q, k, v, beta, slope, prev_s):
    s = prev_s * (1.0 - beta) ** slope + forge.outer(k * beta, v)
    return s, q @ s


# 3. The same over one chunk of C tokens of one head: q, k [C, K], v [C, V], beta [C], slope a number.
def chunk_mode(k, v, beta, slope):
    """What the chunk adds to the memory, as seen at its end."""
    g = forge.cache_result((1.0 - beta).log() * slope, "g")  # the decay as a logarithm, so that a sum is a product
    written = forge.cache_result(k * beta[:, None], "written")
    return (written * (g.sum(0) - g.cumsum(0)).exp()[:, None]).T @ v.float()


def decay_mode(prev_s, chunk_state, g):
    """The memory after the chunk."""
    return prev_s * g.sum(0).exp() + chunk_state


def merge_mode(q, v, g, written, chunk_state):
    """What the queries read: tokens of this chunk, and (chunk_state) the memory before it."""
    G, wide = g.cumsum(0), q.float()
    scores = (wide @ written.T * (G[:, None] - G[None, :]).exp()).tril()
    return scores @ v.float() + wide @ chunk_state * G.exp()[:, None]


sleepy_memory = LinearAttention(
    input_meta, chunk_mode=chunk_mode, decay_mode=decay_mode, merge_mode=merge_mode, step=step, name="sleepy_memory"
)


def main() -> int:
    # 4. Is it right? Ragged, packed and empty sequences, gates from 0 to -inf, against `step` in float64.
    report = sleepy_memory.check()
    print(report)

    # 5. What became of it: which operations wait for the state, which kernels there are, and why.
    explanation = sleepy_memory.explain()
    print("\n".join(line for line in explanation.splitlines() if "state-bound" in line or "The schedule" in line))
    if "--full" in sys.argv:
        print(explanation, sleepy_memory.source(), sep="\n")

    # 6. Calling it: two packed sequences, and the first again from where it stopped.
    rng = np.random.default_rng(0)
    x = {n: rng.standard_normal((300, 4, 64), np.float32) for n in ("q", "k", "v")}
    x |= {"beta": rng.random((300, 4), np.float32), "slope": np.array([0.1, 0.5, 1.0, 2.0], np.float32)}
    o, memory = sleepy_memory(**x, output_final_state=True, cu_seqlens=np.array([0, 100, 300]))
    again, _ = sleepy_memory(**{n: a[:10] if n != "slope" else a for n, a in x.items()}, initial_state=memory[:1])
    print(f"outputs {o.shape} {o.dtype}, memories {memory.shape}, ten tokens more {again.shape}")

    # 7. How fast?
    print(sleepy_memory.benchmark(T=4096))
    return 0 if report else 1


if __name__ == "__main__":
    sys.exit(main())
