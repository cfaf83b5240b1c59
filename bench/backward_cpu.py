"""Forward and backward of the gated delta rule on the CPU: Forge's operator under autograd against the chunked form in
PyTorch eager (peers/torch_eager.py), in one process, on the same inputs, gradients compared. Prints medians and their
ratio; --csv adds a line to a file. Needs PyTorch, the built library (FORGE_LIBRARY) and the package on PYTHONPATH.

    python bench/backward_cpu.py --T 2048 --H 4 --K 128 --V 128 --csv bench/results/DATE-cpu-backward.csv
"""

import argparse
import csv
import datetime
import pathlib
import platform
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import torch_eager  # noqa: E402

from forge import ops  # noqa: E402


def inputs(o):
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(o.T, o.H, o.K), dim=-1) for _ in range(2))
    v = torch.randn(o.T, o.H, o.V)
    g = torch.nn.functional.logsigmoid(torch.randn(o.T, o.H))
    return [x.requires_grad_() for x in (q, k, v, g, torch.rand(o.T, o.H))], torch.randn(o.T, o.H, o.V)


def eager(x, scale):
    return torch_eager.gated_delta_net(*x, scale)[0]


def forge(x, scale):
    return ops.chunk_gated_delta_rule(*(a[None] for a in x), scale=scale)[0][0]


def once(run, x, scale, grad):
    """(seconds, gradients)"""
    for a in x:
        a.grad = None
    begin = time.perf_counter()
    run(x, scale).backward(grad)
    return time.perf_counter() - begin, [a.grad.clone() for a in x]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in (("T", 2048), ("H", 4), ("K", 128), ("V", 128), ("runs", 9), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--csv", type=pathlib.Path)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    x, grad = inputs(o)
    scale = o.K**-0.5
    off = max(
        float((a - b).norm() / b.norm())
        for a, b in zip(once(forge, x, scale, grad)[1], once(eager, x, scale, grad)[1], strict=True)
    )
    if not off < 1e-4:
        raise SystemExit(f"gradients differ by {off:.1e}")
    times = [(once(forge, x, scale, grad)[0], once(eager, x, scale, grad)[0]) for _ in range(o.runs)]
    ours, theirs = (statistics.median(t) for t in zip(*times, strict=True))
    row = {
        "date": datetime.date.today().isoformat(), "device": platform.processor() or platform.machine(),
        "versions": f"torch {torch.__version__}", "command": " ".join(sys.argv), "T": o.T, "H": o.H, "K": o.K, "V": o.V,
        "threads": o.threads, "forge_ms": round(ours * 1e3, 2), "eager_ms": round(theirs * 1e3, 2),
        "ratio": round(theirs / ours, 2), "gradients_differ": f"{off:.1e}",
    }  # fmt: skip
    print(", ".join(f"{name} {value}" for name, value in row.items()))
    if o.csv:
        new = not o.csv.exists()
        with o.csv.open("a", newline="") as file:
            writer = csv.DictWriter(file, row)
            if new:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
