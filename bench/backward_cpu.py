"""Forward and backward of the gated delta rule on the CPU: Forge's operator under autograd against the chunked form in
PyTorch eager (peers/torch_eager.py), in one process, on the same inputs, gradients compared. They take turns in BLOCKS
blocks of --runs. Prints medians in milliseconds, of the passes together and by themselves, and their ratios; `others`
is how much of the machine's cores other processes used meanwhile, and from 5 % on a run says nothing about a quiet
machine. --csv adds a line to a file. Needs PyTorch, the built library (FORGE_LIBRARY) and the package on PYTHONPATH.
Forge takes all cores of the process: `taskset -c 0,1` for two of more.

    python bench/backward_cpu.py --T 2048 --H 4 --K 128 --V 128 --csv bench/results/DATE-cpu-backward.csv
"""

import argparse
import csv
import datetime
import os
import pathlib
import platform
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import torch_eager  # noqa: E402

import forge  # noqa: E402
from forge import ops  # noqa: E402

BLOCKS = 3


def inputs(o):
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(o.T, o.H, o.K), dim=-1) for _ in range(2))
    v = torch.randn(o.T, o.H, o.V)
    g = torch.nn.functional.logsigmoid(torch.randn(o.T, o.H))
    return [x.requires_grad_() for x in (q, k, v, g, torch.rand(o.T, o.H))], torch.randn(o.T, o.H, o.V)


def eager(x, scale):
    return torch_eager.gated_delta_net(*x, scale)[0]


def ours(x, scale):
    return ops.chunk_gated_delta_rule(*(a[None] for a in x), scale=scale)[0]


def once(run, x, scale, grad):
    """(seconds forward, seconds backward, gradients)"""
    for a in x:
        a.grad = None
    begin = time.perf_counter()
    out = run(x, scale)
    between = time.perf_counter()
    out.backward(grad.view(out.shape))
    end = time.perf_counter()
    return between - begin, end - between, [a.grad for a in x]


def cpu():
    """The processor's name, as Linux has it."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def busy():
    """Seconds of all cores' work since the machine's start, this process's own left out; nothing but Linux has it."""
    if sys.platform != "linux":
        return 0.0
    user, nice, system = (int(n) for n in pathlib.Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - time.process_time()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in (("T", 2048), ("H", 4), ("K", 128), ("V", 128), ("runs", 6), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=size, help=f"({size})")
    parser.add_argument("--csv", type=pathlib.Path)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    x, grad = inputs(o)
    scale = o.K**-0.5
    off = max(
        float((a - b).norm() / b.norm())
        for a, b in zip(once(ours, x, scale, grad)[2], once(eager, x, scale, grad)[2], strict=True)
    )
    if not off < 1e-4:
        raise SystemExit(f"gradients differ by {off:.1e}")
    others, begin = busy(), time.perf_counter()
    times = {ours: [], eager: []}
    for _ in range(BLOCKS):
        for run, measured in times.items():
            once(run, x, scale, grad)  # after which the other's threads do not spin any more
            measured += [once(run, x, scale, grad)[:2] for _ in range(o.runs)]
    others = (busy() - others) / (time.perf_counter() - begin) / (os.cpu_count() or 1)
    (f, b, both), (f_eager, b_eager, both_eager) = (
        [1e3 * statistics.median(t) for t in (*zip(*measured, strict=True), [sum(pair) for pair in measured])]
        for measured in times.values()
    )
    row = {
        "date": datetime.date.today().isoformat(), "device": f"{cpu()}, {os.cpu_count()} cores",
        "versions": f"forge {forge.__version__}, torch {torch.__version__}",
        "command": " ".join(["bench/backward_cpu.py", *sys.argv[1:]]), "T": o.T, "H": o.H, "K": o.K, "V": o.V,
        "threads": o.threads, "forge_forward_ms": round(f, 2), "forge_backward_ms": round(b, 2),
        "forge_ms": round(both, 2), "eager_forward_ms": round(f_eager, 2), "eager_backward_ms": round(b_eager, 2),
        "eager_ms": round(both_eager, 2), "ratio_forward": round(f_eager / f, 2),
        "ratio_backward": round(b_eager / b, 2), "ratio": round(both_eager / both, 2), "gradients_differ": f"{off:.1e}",
        "others": f"{others:.0%}",
    }  # fmt: skip
    print("\n".join(f"{name:<20}{value}" for name, value in row.items()))
    if o.csv:
        new = not o.csv.exists()
        with o.csv.open("a", newline="") as file:
            writer = csv.DictWriter(file, row)
            if new:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
