"""Compiling ahead of time: `forge.build` writes packages that libforge_rt loads without a compiler or Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from . import _c
from ._types import DTypeLike, dtype_name
from .attention import Attention

_Variant = Attention | str


def build(
    variants: _Variant | Iterable[_Variant],
    output: str | Path,
    *,
    targets: Sequence[str],
    sizes: Mapping[str, int | Sequence[int]],
    dtypes: Sequence[DTypeLike] = ("bfloat16",),
    entries: Sequence[str] = ("forward", "decode"),
    name: str | None = None,
    shared: bool = False,
    chunk_states: bool = False,
    batch_invariant: bool = False,
    state_dtype: DTypeLike = "float32",
    tokens: Sequence[int] | None = None,
    tasks: Sequence[int] | None = None,
    threads: int = 0,
    database: str | Path | None = None,
    jobs: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Path]:
    """Compiles entry points of variants ahead of time into a package, the folder `output`; the files that it wrote.

    `variants`: a LinearAttention or another Attention, the name of a ready-made variant, or several of them. `targets`:
    "sm_90a", "sm_80", "sm_89", "x86-64", "x86-64-v3", "x86-64-v4", none of which needs to be there. `sizes`: the values
    of each size, {"K": [64, 128], "V": 64}, all with all; "K=V" stands for two that are always the same. Lengths,
    batches and heads stay open. `shared` also writes lib<name>.so, with everything in it.
    `chunk_states`: calls can have the states before chunks. `batch_invariant`: the bits of a sequence do not depend on
    others in a call; lengths and tasks then choose no kernels. `state_dtype`: what decoding's states are made of in
    memory, float32, bfloat16 or float16.

    `tokens` (per sequence) and `tasks` (sequences times heads) are the calls that kernels are chosen for, by what
    `forge tune` measured (`database`: its file, from a machine with the target) and by the cost model; a table in the
    package leads every call to those of the nearest. `threads`: of a CPU that is compiled for. Compilations run `jobs`
    at a time, and stay in the cache: what was interrupted goes on. `progress(done, all, what)` follows the work.

    Python does not need libforge_rt; C and C++ do: docs/packages.md.
    """
    several = [variants] if isinstance(variants, (Attention, str)) else list(variants)
    options: dict[str, object] = {
        "output": output,
        "name": name or Path(output).resolve().name,
        "targets": ",".join(targets),
        "entries": ";".join(entries),
        "dtypes": ",".join(dtype_name(dtype) for dtype in dtypes),
        "shared": shared,
        "chunk_states": chunk_states,
        "batch_invariant": batch_invariant,
        "state_dtype": dtype_name(state_dtype),
        "threads": threads,
        "jobs": jobs,
    }
    for symbol, values in sizes.items():
        options[f"size.{symbol}"] = _listed([values] if isinstance(values, int) else values)
    if tokens:
        options["tokens"] = _listed(tokens)
    if tasks:
        options["tasks"] = _listed(tasks)
    if database:
        options["database"] = database
    texts = [v.definition if isinstance(v, Attention) else _c.variant_definition(v) for v in several]
    return [Path(file) for file in _c.package(texts, options, progress)]


def _listed(values: Sequence[int]) -> str:
    return ",".join(str(value) for value in values)
