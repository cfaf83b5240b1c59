"""Variants from your own functions: `LinearAttention`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from . import _c, _measure
from ._location import Location
from ._package import build
from ._program import Meta, Program
from ._types import SymbTensor, is_name
from ._variant import AHEAD
from .attention import Attention


class LinearAttention(Attention):
    """A variant from its recurrence, or from three functions over one chunk of tokens of one head.

    `step` alone is enough where it is affine in the states: the three functions are derived from it (docs/python.md
    says what that takes). Those that are written by hand are held against `step`, if there is one.

    input_meta    name -> SymbTensor, or a number for a scalar with a default; 'prev_s' or 'prev_<name>': the states
    chunk_mode    inputs -> the chunk's own contribution to the state
    decay_mode    prev_s, chunk_state, inputs -> the state after the chunk
    merge_mode    inputs, chunk_state (the state before the chunk) -> the output
    step          inputs of one token, prev_s -> (next state, output): alone, or what `check` holds the rest to
    sequential    whether a step alone runs as it stands, token by token with the states on chip: what is not affine in
                  the states has no form over chunks. Gradients keep the states before every token
    chunk         optional: the tokens per chunk (16, 32, 64, 128), if results depend on it; else Forge chooses
    enable_aot    compile now, for every combination of the values of ConstExpr: calls and `decode` with these sizes, in
                  the declared types, then compile nothing
    code_dir      where compiled kernels are kept (default: the cache directory); with enable_aot as packages, which
                  the next process finds there, and from which calls come without a compiler
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
        sequential: bool = False,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        by_hand = {"chunk_mode": chunk_mode, "decay_mode": decay_mode, "merge_mode": merge_mode}
        step_alone = callable(step) and all(fn is None for fn in by_hand.values())
        for phase, fn in by_hand.items():
            if not callable(fn) and not step_alone:
                raise TypeError(
                    f"LinearAttention: argument '{phase}': expected a function (all three, or step alone), got {fn!r}"
                )
        if step is not None and not callable(step):
            raise TypeError(f"LinearAttention: argument 'step': expected a function, got {step!r}")
        if step_alone and chunk is not None:
            raise ValueError("LinearAttention: argument 'chunk': a step alone has results of no chunk; leave it out")
        if sequential and not step_alone:
            raise TypeError(
                "LinearAttention: argument 'sequential': expected step alone with it, got other functions too"
            )
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
        program = Program(
            name or _name_of(step if step_alone else chunk_mode), meta, phases, 1 if sequential else chunk or 0
        )
        chosen = {**({"cache_dir": str(Path(code_dir) / "cache")} if code_dir else {}), **(options or {})}
        defaults = {i.name: i.default for i in meta.inputs.values() if i.default is not None}
        super().__init__(program.text, options=chosen, defaults=defaults, allowed=meta.constants, sp_group=sp_group)
        if enable_aot:
            self._compile_all(code_dir, options)

    def _compile_all(self, code_dir: str | None, options: Mapping[str, Any] | None) -> None:
        if missing := [s for s in self.signature.symbols if s not in self._allowed]:
            raise TypeError(f"{self.name}: enable_aot: expected a ConstExpr for {', '.join(missing)}")
        device = _measure.default_device()
        dtype = next((i.dtype for i in self.signature.tensors if i.dtype in ("bf16", "f16")), "f32")
        sizes = {s: self._allowed[s] for s in self.signature.symbols}
        if code_dir and not options:  # packages have the schedules that Forge chooses
            self._ahead = self._package(Path(code_dir), device, dtype, sizes), device.partition(":")[0]
            return
        heads = max((max(self._allowed.get(h, (4,))) for h in self.signature.head_symbols), default=4)
        for values in product(*sizes.values()):
            self.compile(device, dtype, 1, 4096, heads, None, "forward", **dict(zip(sizes, values)))

    def _package(self, code_dir: Path, device: str, dtype: str, sizes: Mapping[str, tuple[int, ...]]) -> Path:
        """The folder of the package; built unless it is there, for all of this: its name says for what."""
        target = "native" if device == "cpu" else _measure.architecture(device)
        wanted = [self.definition, _c.library().forge_build().decode(), target, dtype, *map(str, sorted(sizes.items()))]
        digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
        folder = code_dir / f"{self.name}-{dtype}-{target}-{digest}"
        if not (folder / "manifest.json").exists():
            build(self, folder, targets=[target], sizes=sizes, dtypes=[dtype], entries=AHEAD, name=self.name)
        return folder


def _name_of(function: Callable[..., Any] | None) -> str:
    """scalar_gla for scalar_gla_chunk, chunk_scalar_gla or scalar_gla_step; "attention" for functions named after their
    phase alone."""
    name = re.sub(r"(^|_)(chunk|step)(_mode|_fn|_fwd)?(?=_|$)", "", getattr(function, "__name__", "")).strip("_")
    return name if is_name(name) else "attention"
