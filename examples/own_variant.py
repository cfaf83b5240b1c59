import sys

import forge
from forge import SymbTensor


def pointed_step(q, k, v, beta, prev_s):
    """One token of one head, q, k [K], v [V], beta []: a row of the state [K, V] is forgotten as far as the key points
    at it; the squares of a unit key sum to 1."""
    share = forge.l2norm(k) * forge.l2norm(k)
    s = forge.exp(-beta * share)[:, None] * prev_s + forge.outer(k, v)
    return s, q @ s


pointed = forge.LinearAttention(
    {
        "q": SymbTensor(["T", "H", "K"], dtype=forge.bfloat16),
        "k": SymbTensor(["T", "H", "K"], dtype=forge.bfloat16),
        "v": SymbTensor(["T", "H", "V"], dtype=forge.bfloat16),
        "beta": SymbTensor(["T", "H"], range=(0, 4)),
        "prev_s": SymbTensor(["NS", "H", "K", "V"]),
    },
    step=pointed_step,
)

if __name__ == "__main__":
    found = forge.search(
        [pointed, "gated_delta_net", "gla"], decay=["none", "scalar"], update=["additive", "delta"],
        on="h200", tokens=8192, heads=32,
        train=int(sys.argv[1]) if sys.argv[1:] else 0, csv="found.csv", plot="found.svg",
    )  # fmt: skip
    print(found)
