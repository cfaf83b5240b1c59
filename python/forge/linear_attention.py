"""Variants from your own functions: `LinearAttention`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from . import _measure
from ._location import Location
from ._program import Meta, Program
from ._types import SymbTensor, is_name
from .attention import Attention


class LinearAttention(Attention):
    """A variant from three functions over one chunk of tokens of one head, and, to check against, its recurrence.

    input_meta    name -> SymbTensor, or a number for a scalar with a default; 'prev_s' or 'prev_<name>': the states
    chunk_mode    inputs -> the chunk's own contribution to the state
    decay_mode    prev_s, chunk_state, inputs -> the state after the chunk
    merge_mode    inputs, chunk_state (the state before the chunk) -> the output
    step          optional: inputs of one token, prev_s -> (next state, output): what `check` holds the rest to
    chunk         optional: the tokens per chunk (16, 32, 64, 128), if results depend on it; else Forge chooses
    enable_aot    compile now, for every combination of the values of ConstExpr, and keep the sources in `code_dir`
    code_dir      where generated sources and compiled kernels are kept (default: the cache directory)
    sp_group      calls have this rank's tokens of sequences that go over all ranks of it: forge.distributed.Group, or a
                  torch process group over gloo
    """

    def __init__(
        self,
        input_meta: Mapping[str, SymbTensor | float],
        sp_group: Any = None,
        enable_aot: bool = False,
        code_dir: str | None = None,
        chunk_mode: Callable[..., Any] | None = None,
        decay_mode: Callable[..., Any] | None = None,
        merge_mode: Callable[..., Any] | None = None,
        *,
        step: Callable[..., Any] | None = None,
        chunk: int | None = None,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        for phase, fn in {"chunk_mode": chunk_mode, "decay_mode": decay_mode, "merge_mode": merge_mode}.items():
            if not callable(fn):
                raise TypeError(f"LinearAttention: argument '{phase}': expected a function, got {fn!r}")
        if name is not None and not is_name(name):
            raise ValueError(
                f"LinearAttention: argument 'name': expected letters, digits and _, no digit first, got {name!r}"
            )
        if sp_group is not None and not (hasattr(sp_group, "rank") and hasattr(sp_group, "size")):
            raise TypeError(
                "LinearAttention: argument 'sp_group': expected forge.distributed.Group or a process group of "
                f"torch.distributed, got {sp_group!r}"
            )
        if chunk is not None and chunk not in (16, 32, 64, 128):
            raise ValueError(f"LinearAttention: argument 'chunk': expected 16, 32, 64 or 128 tokens, got {chunk!r}")
        meta = Meta(input_meta, Location.of_caller())
        phases = {"chunk": chunk_mode, "decay": decay_mode, "merge": merge_mode, "step": step}
        program = Program(name or _name_of(chunk_mode), meta, phases, chunk or 0)
        chosen = {**({"cache_dir": str(Path(code_dir) / "cache")} if code_dir else {}), **(options or {})}
        defaults = {i.name: i.default for i in meta.inputs.values() if i.default is not None}
        super().__init__(program.text, options=chosen, defaults=defaults, allowed=meta.constants, sp_group=sp_group)
        if enable_aot:
            self._compile_all(code_dir)

    def _compile_all(self, code_dir: str | None) -> None:
        device, dtype = (
            _measure.default_device(),
            next((i.dtype for i in self.signature.tensors if i.dtype in ("bf16", "f16")), "f32"),
        )
        if missing := [s for s in self.signature.symbols if s not in self._allowed]:
            raise TypeError(f"{self.name}: enable_aot: expected a ConstExpr for {', '.join(missing)}")
        heads = max((max(self._allowed.get(h, (4,))) for h in self.signature.head_symbols), default=4)
        for values in product(*(self._allowed[s] for s in self.signature.symbols)):
            sizes = dict(zip(self.signature.symbols, values))
            compiled = self.compile(device, dtype, 1, 4096, heads, None, "forward", **sizes)
            if code_dir:
                folder = Path(code_dir) / "_".join(
                    [self.name, *(f"{s}{n}" for s, n in sizes.items()), dtype, device.replace(":", "")]
                )
                folder.mkdir(parents=True, exist_ok=True)
                for name, text in compiled.sources().items():
                    (folder / name).write_text(text, encoding="utf-8")


def _name_of(chunk_mode: Callable[..., Any] | None) -> str:
    """scalar_gla for scalar_gla_chunk or chunk_scalar_gla; "attention" for functions named after their phase alone."""
    name = re.sub(r"(^|_)chunk(_mode|_fn|_fwd)?(?=_|$)", "", getattr(chunk_mode, "__name__", "")).strip("_")
    return name if is_name(name) else "attention"
