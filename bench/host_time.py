#!/usr/bin/env python3
"""What Python's side of Forge takes: importing it, calls that are like earlier ones, launches, and the way from a
program to its result.

    python3 bench/host_time.py --csv host.csv                  # on the CPU, with NumPy, and PyTorch if there is one
    python3 bench/host_time.py --device cuda --csv host.csv    # on a GPU: each operator of forge.ops, short and long

Per row, the median of --runs measurements, and the limit that the project keeps to on an idle H200 host (none on the
CPU):

    import             milliseconds of importing a module in a fresh interpreter
    call               microseconds until a call returns, over 20 calls in a row
    launch             … until forge_launch alone returns, with what a call has prepared for it
    program to result  seconds from a definition to its first result with an empty cache (PyTorch loaded)

Nothing else should run beside it. The exit status is 1 if a row is over its limit.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "python"
COLUMNS = ["what", "case", "BxTxHxKxV", "kernels", "time", "unit", "limit"]
IN_A_ROW = 20
#: Sequences of other tests' sizes, and some whose plans have several kernels: segments, where they pay.
SHORT, LONG = (2, 300, 2, 128, 128), (1, 16384, 4, 128, 128)
LONG_TOO = ("chunk_gla", "chunk_kda", "chunk_simple_gla", "chunk_gated_delta_rule")


class Row(NamedTuple):
    what: str
    case: str
    time: float
    unit: str
    limit: float | None = None
    shape: str = ""
    kernels: str = ""


def microseconds(call: Callable[[], object], runs: int, wait: Callable[[], object] = lambda: None) -> float:
    """Median time until a call returns."""
    for _ in range(IN_A_ROW):
        call()
    times = []
    for _ in range(runs):
        wait()
        begin = time.perf_counter()
        for _ in range(IN_A_ROW):
            call()
        times.append((time.perf_counter() - begin) / IN_A_ROW * 1e6)
    wait()
    return statistics.median(times)


def fresh(code: str, **environment: str) -> float:
    """The number that a program prints in an interpreter of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environment}
    return float(
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    )


# ------------------------------------------------------------------------------------------------------------ rows


def imports(runs: int) -> Iterator[Row]:
    for module in ("forge", "forge.variants", "forge.ops"):
        code = f"import time; begin = time.perf_counter(); import {module}; print((time.perf_counter() - begin) * 1e3)"
        yield Row("import", module, statistics.median(fresh(code) for _ in range(runs)), "ms")


def calls_on_the_cpu(runs: int) -> Iterator[Row]:
    """Of one token, so that it is the host's time that counts."""
    from forge import ops
    from programs import PROGRAMS, random_inputs

    shape = (1, 1, 1, 8, 8)
    arrays = random_inputs("scalar_gla", *shape)
    libraries = {"NumPy": arrays}
    try:
        import torch

        torch.set_grad_enabled(False)
        libraries["PyTorch"] = {n: torch.from_numpy(a) for n, a in arrays.items()}
    except ImportError:
        pass
    attn = PROGRAMS["scalar_gla"]()
    for library, x in libraries.items():
        own, ready = partial(attn, **x), partial(ops.chunk_simple_gla, *x.values())
        yield Row("call", f"LinearAttention, {library}", microseconds(own, runs), "us", None, text_of(shape))
        yield Row("call", f"forge.ops, {library}", microseconds(ready, runs), "us", None, text_of(shape))


def calls_on_a_gpu(runs: int) -> Iterator[Row]:
    import torch

    from forge import _launch, ops
    from reference import CASES, inputs_for, is_half, keywords_for

    torch.set_grad_enabled(False)

    def prepared(case, shape: tuple) -> Callable[[], object]:
        x = {
            n: torch.from_numpy(a).to("cuda", torch.bfloat16 if is_half(case, n) else torch.float32)
            for n, a in inputs_for(case, *shape).items()
        }
        more, run = keywords_for(case), getattr(ops, case.op)
        return lambda: run(**x, **more)

    for case in CASES:
        for shape in (SHORT, *((LONG,) if case.op in LONG_TOO else ())):
            yield Row(
                "call",
                str(case),
                microseconds(prepared(case, shape), runs, torch.cuda.synchronize),
                "us",
                40,
                text_of(shape),
            )
        call, launches, launch = prepared(case, SHORT), [], _launch.Launcher.__call__
        _launch.Launcher.__call__ = lambda self, *given: (launches.append(self), launch(self, *given))[1]  # noqa: B023
        try:
            results = call()
        finally:
            _launch.Launcher.__call__ = launch
        launcher = launches[0]
        layout = launcher._free[
            0
        ]  # with the addresses of that call, which `call` and `results` keep; its workspace is nobody's
        memory = torch.empty(max(1, layout.args.workspace_bytes), dtype=torch.uint8, device="cuda")
        layout.args.workspace = memory.data_ptr()
        spent = microseconds(lambda: launcher._launch(launcher._handle, layout.address), runs, torch.cuda.synchronize)  # noqa: B023
        yield Row("launch", str(case), spent, "us", 10, text_of(SHORT), str(len(launcher._compiled.info["kernels"])))
        del results


def program_to_result() -> Iterator[Row]:
    code = (
        "import time, numpy, torch; torch.zeros(1, device='cuda'); loaded = time.perf_counter()\n"
        "from programs import PROGRAMS, random_inputs\n"
        "x = "
        "{n: torch.from_numpy(a).cuda() for n, a in random_inputs('gated_delta_net', 1, 1024, 4, 128, 128).items()}\n"
        "PROGRAMS['gated_delta_net']()(**{n: a if n == 'g' else a.bfloat16() for n, a in x.items()}); "
        "torch.cuda.synchronize()\n"
        "print(time.perf_counter() - loaded)"
    )
    with tempfile.TemporaryDirectory() as cache:
        yield Row(
            "program to result",
            "gated_delta_net, empty cache",
            fresh(code, FORGE_CACHE_DIR=cache),
            "s",
            10,
            text_of((1, 1024, 4, 128, 128)),
        )


def text_of(shape: tuple) -> str:
    return "x".join(map(str, shape))


# ---------------------------------------------------------------------------------------------------------- the program


def machine(device: str) -> str:
    if device == "cuda":
        import torch

        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    return f"{os.cpu_count()} cores, Python {sys.version.split()[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", type=int, default=20, help="measurements per row (20)")
    parser.add_argument("--csv", type=Path, help="writes the rows there")
    args = parser.parse_args()
    sys.path[:0] = [str(TESTS), str(ROOT / "python")]
    rows, over = [], 0
    parts = (
        [imports(args.runs), calls_on_the_cpu(args.runs)]
        if args.device == "cpu"
        else [calls_on_a_gpu(args.runs), program_to_result()]
    )
    for part in parts:
        for row in part:
            rows.append(row)
            over += row.limit is not None and row.time > row.limit
            limit = "" if row.limit is None else f"  limit {row.limit:g}{'' if row.time <= row.limit else ': OVER'}"
            print(f"{row.what:<18}{row.case:<42}{row.shape:<20}{row.time:9.1f} {row.unit}{limit}", flush=True)
    if args.csv:
        with args.csv.open("w", newline="", encoding="utf-8") as file:
            file.write(
                f"# {datetime.date.today()} | {machine(args.device)} | bench/host_time.py {' '.join(sys.argv[1:])}\n"
            )
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for r in rows:
                writer.writerow(
                    [
                        r.what,
                        r.case,
                        r.shape,
                        r.kernels,
                        f"{r.time:.1f}",
                        r.unit,
                        "" if r.limit is None else f"{r.limit:g}",
                    ]
                )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
