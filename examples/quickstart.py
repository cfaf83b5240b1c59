"""The ready-made variants in a few lines, with two pictures: what a memory recalls, and how time grows with length.

    pip install . numpy matplotlib && python examples/quickstart.py [--out FOLDER]

Without matplotlib the numbers are printed only.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import forge
from forge import ops


def recall(pairs: int, K: int = 32, seed: int = 0) -> dict[str, float]:
    """Writes random key-value pairs, one key twice with two values, and at the end asks for it: the error of the answer
    against the newer value, relative to its size."""
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((pairs, K)).astype(np.float32)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    newer = pairs // 2
    keys[newer] = keys[0]
    values = rng.standard_normal((pairs, K)).astype(np.float32)
    q, k, v = (a.reshape(1, pairs, 1, K) for a in (np.tile(keys[0], (pairs, 1)), keys, values))
    one = np.ones((1, pairs, 1), np.float32)
    answers = {
        "linear attention": ops.chunk_linear_attn(q, k, v, scale=1.0, normalize=False)[0],
        "scalar gates (Mamba-2)": ops.chunk_simple_gla(q, k, v, g=-0.01 * one, scale=1.0)[0],
        "delta rule": ops.chunk_delta_rule(q, k, v, one, scale=1.0)[0],
        "gated delta rule": ops.chunk_gated_delta_rule(q, k, v, -0.01 * one, one, scale=1.0)[0],
    }
    return {
        name: float(np.linalg.norm(o[0, -1, 0] - values[newer]) / np.linalg.norm(values[newer]))
        for name, o in answers.items()
    }


def seconds(T: int, H: int = 4, K: int = 64) -> float:
    """The best time of five calls on [1, T, H, K]."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, T, H, K)).astype(np.float32) * K**-0.5 for _ in range(3))
    g = -rng.random((1, T, H)).astype(np.float32)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        forge.variants.scalar_gla(q=q, k=k, v=v, g=g, scale=1.0)
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    counts, lengths = [2, 4, 8, 16, 32, 64], [256, 512, 1024, 2048, 4096, 8192]
    runs = {n: [recall(n, seed=seed) for seed in range(20)] for n in counts}
    errors = {
        n: {name: sum(r[name] for r in several) / len(several) for name in several[0]} for n, several in runs.items()
    }
    times = {T: seconds(T) for T in lengths}
    print("error of a recalled value that was overwritten, by pairs written")
    for name in errors[counts[0]]:
        print(f"  {name:<24}" + "".join(f"{errors[n][name]:8.3f}" for n in counts))
    print(
        "milliseconds by length, scalar gates, 4 heads of 64: "
        + ", ".join(f"{T}: {t * 1e3:.2f}" for T, t in times.items())
    )
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in errors[counts[0]]:
        left.plot(counts, [errors[n][name] for n in counts], marker="o", label=name)
    left.set_xscale("log", base=2)
    left.set(
        xlabel="pairs written", ylabel="relative error of the recalled value", title="Overwriting a memory of 32 × 32"
    )
    left.legend()
    right.plot(lengths, [times[T] * 1e3 for T in lengths], marker="o")
    right.set_xscale("log", base=2)
    right.set_yscale("log", base=2)
    right.set(xlabel="tokens", ylabel="milliseconds", title="Time grows with length, not with its square")
    figure.savefig(out / "quickstart.png", dpi=120)
    print(f"wrote {out / 'quickstart.png'}")


if __name__ == "__main__":
    main()
