"""Variants as callables: `LinearAttention` from your own functions, `Attention` from a definition in text form."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

from . import _c, _measure
from ._arrays import library_of
from ._calls import Plan, Signature, chunks_of, dtype_of_call, factor_of, read_shapes, rounded_up, with_one_head
from ._program import Meta, Program
from ._trace import Location

_MOST_PLANS = 4096
_CHUNK = 64  #: tokens between the states that return_intermediate_states returns, unless options say otherwise


class Attention:
    """A variant of linear attention: a definition in text form, compiled for the types, sizes and device of its calls.

    `options` are compile options of include/forge_c.h, such as {"strategy": "fused", "chunk": 64}; they hold for every call. `one_head`:
    arrays come and go without the axis of heads, of which there is one.
    """

    def __init__(
        self,
        definition: str,
        *,
        options: Mapping | None = None,
        defaults: Mapping[str, float] | None = None,
        allowed: Mapping | None = None,
        one_head: bool = False,
    ):
        self.definition = definition
        self.signature = Signature(definition)
        self.name = self.signature.name
        self.options = dict(options or {})
        self.one_head = one_head
        self._defaults = dict(defaults or {})  #: of scalars
        self._allowed = dict(allowed or {})  #: the values that ConstExpr leave a symbol
        self._tensor_names = [i.name for i in self.signature.tensors]
        self._scalar_names = [i.name for i in self.signature.scalars]
        self._known = {i.name for i in self.signature.inputs}
        self._compiled: dict[tuple, _c.Compiled] = {}
        self._plans: dict[tuple, Plan] = {}
        self._latest: tuple = (None, None)  #: the last call's key and plan
        self._warned: set[str] = set()  #: reasons for slower kernels that the user has read
        self._last: _c.Compiled | None = None  #: what `compile` or `check` compiled last, to look inside before the first call
        self._lock = threading.Lock()

    def __repr__(self):
        return f"<forge.Attention {self.name}({', '.join(i.name for i in self.signature.inputs)})>"

    # -- calling -----------------------------------------------------------------------------------------------------------

    def __call__(
        self, *args, initial_state=None, output_final_state: bool = False, cu_seqlens=None, return_intermediate_states: bool = False, **kwargs
    ):
        """(output, final state): the outputs, and the states after the last tokens or None.

        Arrays are NumPy's or PyTorch's, of any strides: token inputs [B, T, heads, …], or [T, heads, …] for one sequence or packed
        ones. States are float32 [N, heads, …], N the sequences; of several states, a tuple in the order of declaration (or, going
        in, a dictionary). Where the definition reads prev_token(x), one more state follows them, last_x: the rows of x's last token,
        with x's heads. Going in, all of these may be left out: the first token then looks back to the pad value. `cu_seqlens`: int32 or int64 [N + 1], offsets of packed sequences in tokens, on the device of the inputs.
        Several outputs come as a tuple. Outputs have the type and device of the inputs; nothing is copied.

        With `return_intermediate_states` a third result: the states before every chunk of 64 tokens (or of `options["chunk"]`), float32
        [B, chunks, heads, …], or [chunks, heads, …] where the inputs have no batch; packed sequences have theirs in a row, for which
        `cu_seqlens` is read on the host.
        """
        if args:
            kwargs = self._named(args, kwargs)
        try:
            tensors = [kwargs[name] for name in self._tensor_names]
        except KeyError:
            tensors = None
        if tensors is None or len(kwargs) > len(tensors):
            self._refuse(kwargs)
        scalars = [x if type(x) is float else self._number(name, x) for name in self._scalar_names for x in (kwargs.get(name),)]
        initial = self._initial_states(initial_state) if initial_state is not None else None
        results = self.run(tensors, scalars, initial, output_final_state, cu_seqlens, return_intermediate_states)
        count = len(self.signature.outputs)
        outputs, states = results[:count], results[count:]
        output = outputs[0] if count == 1 else tuple(outputs)
        final = _one_or_all(states[: len(self.signature.states)]) if output_final_state else None
        if not return_intermediate_states:
            return output, final
        return output, final, _one_or_all(states[-len(self.signature.states) :])

    def run(self, tensors: list, scalars: list, initial: list | None, final: bool, cu_seqlens, before_chunks: bool = False) -> list:
        """The outputs, then the final states if `final`, then the states before chunks. All arguments, and what `initial` has, in the order of
        declaration."""
        arrays = library_of(tensors[0])
        if initial is not None and arrays is not None:
            initial = [arrays.float32(s) if library_of(s) is arrays and arrays.dtype(s) in ("bf16", "f16", "f64") else s for s in initial]
        chunks = self._chunks(tensors[0], cu_seqlens) if before_chunks else None
        return self.plan(arrays, tensors, initial, final, cu_seqlens, chunks).run(tensors, scalars, initial, cu_seqlens)

    def _chunks(self, first, cu_seqlens) -> int:
        """How many states before chunks a call has; `first`: its first tensor."""
        if first is None or (i := self.signature.tensors[0]).kind != "input":
            raise _c.RuntimeError(f"{self.name}: return_intermediate_states: expected an input of tokens first, got {self.signature.tensors[0].kind}")
        axis = first.ndim - len(i.dims) + (1 if self.one_head else 0)
        return chunks_of(first.shape[axis] // factor_of(i.dims[0]), cu_seqlens, int(self.options.get("chunk") or _CHUNK))

    def plan(self, arrays, tensors: list, initial: list | None, final: bool, cu_seqlens, chunks: int | None = None) -> Plan:
        """What calls with arguments of these layouts run; NotImplementedError where gradients are wanted."""
        given = tensors
        if initial is not None or cu_seqlens is not None:
            given = [*tensors, *(initial or ()), *(() if cu_seqlens is None else (cu_seqlens,))]
        try:
            key = final, initial is None, cu_seqlens is None, chunks, arrays.layouts(given)
        except AttributeError:
            raise self._strange_array(arrays, tensors, initial, cu_seqlens) from None
        if arrays.wants_gradients(given):
            raise NotImplementedError(f"{self.name}: Forge has no gradients yet; call it under torch.no_grad(), or detach the inputs")
        known, plan = self._latest
        if key != known:  # comparing is faster than hashing
            plan = self._plans.get(key) or self._new_plan(key, arrays, tensors, initial, final, cu_seqlens, chunks)
            self._latest = key, plan
        return plan

    def _new_plan(self, key, arrays, tensors: list, initial: list | None, final: bool, cu_seqlens, chunks: int | None) -> Plan:
        names, given = self._named_arrays(tensors, initial, cu_seqlens)
        if any(library_of(x) is not arrays for x in given):
            raise self._strange_array(arrays, tensors, initial, cu_seqlens)
        if cu_seqlens is not None and (len(cu_seqlens.shape) != 1 or cu_seqlens.shape[0] < 1 or arrays.dtype(cu_seqlens) not in ("i32", "i64")):
            got = f"{arrays.dtype(cu_seqlens)} {list(cu_seqlens.shape)}"
            raise ValueError(f"{self.name}: argument 'cu_seqlens': expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got {got}")
        device = arrays.device(tensors[0])
        for name, x in zip(names, given):
            if arrays.device(x) != device:
                raise _c.RuntimeError(
                    f"{self.name}: argument '{name}': expected an array on {device} as '{names[0]}', got one on {arrays.device(x)}"
                )
        entries = [(self._dtype(arrays, name, x), tuple(x.shape), arrays.strides(x)) for name, x in zip(names, given)]
        inputs, states = entries[: len(tensors)], entries[len(tensors) : len(tensors) + len(initial or [])]
        if self.one_head:
            inputs = [with_one_head(e, len(i.dims) - (2 if i.kind == "input" else 1)) for e, i in zip(inputs, self.signature.tensors)]
            states = [with_one_head(e, len(dims)) for e, dims in zip(states, self.signature.states.values())]
        sequences = cu_seqlens.shape[0] - 1 if cu_seqlens is not None else None
        shape = read_shapes(self.signature, [size for _, size, _ in inputs], self._allowed, sequences)
        for s in initial or []:
            if tuple(s.shape)[:1] != (shape.sequences,):
                raise ValueError(
                    f"{self.name}: argument 'initial_state': expected {shape.sequences} states, one per sequence, got shape {list(s.shape)}"
                )
        compiled = self._compiled_for(
            device, dtype_of_call(self.signature, [d for d, _, _ in inputs]), shape.sizes, shape.sequences, shape.tokens, shape.most_heads,
            cu_seqlens is not None, more={} if chunks is None else {"chunk_states": 1, "chunk": self.options.get("chunk") or _CHUNK},
        )  # fmt: skip
        self._warn_of(compiled)
        offsets = entries[-1] if cu_seqlens is not None else None
        plan = Plan(compiled, shape, arrays, tensors[0], inputs, states if initial is not None else None, final, offsets, self.one_head, chunks)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _compiled_for(
        self,
        device: str,
        dtype: str,
        sizes: Mapping[str, int],
        sequences: int = 1,
        tokens: int = 4096,
        heads: int = 4,
        packed: bool = False,
        on: str | None = None,
        more: Mapping | None = None,
    ) -> _c.Compiled:
        """The variant for these sizes, compiled for calls of about this shape: lengths within a factor of two share one."""
        length = tokens // max(1, sequences) if packed else tokens
        expected = {"expected_tokens": rounded_up(length, 2, 64), "expected_sequences": rounded_up(max(1, sequences), 2, 1), "expected_heads": heads}
        options = {"device": device, "dtype": dtype, **{f"size.{s}": n for s, n in sorted(sizes.items())}, **expected, **self.options, **(more or {})}
        if on is not None:
            options["on"] = on
        key = tuple(options.items())
        with self._lock:
            if key not in self._compiled:
                compiled = self._compiled[key] = _c.Compiled(self.definition, options)
                compiled.request = dict(device=device, dtype=dtype, sequences=sequences, tokens=length, heads=heads, on=on, **sizes)
        return self._compiled[key]

    def _warn_of(self, compiled: _c.Compiled) -> None:
        """Warns, once per reason, of portable kernels where the program could have better ones."""
        if compiled.info["engine"] != "portable":
            return
        reasons = [r for r in compiled.info["refused"] if r["way_out"] and r["reason"] not in self._warned]
        if not reasons:
            return
        self._warned.update(r["reason"] for r in reasons)
        listed = "".join(f"\n    not {r['engine']}: {r['why']}\n        way out: {r['way_out']}" for r in reasons)
        text = f"{self.name}: portable kernels, where the GPU ({compiled.info['arch']}) may run faster ones:{listed}"
        where = Location.of_caller()
        warnings.warn_explicit(text, _c.PerformanceWarning, where.file, where.line)

    # -- arguments -----------------------------------------------------------------------------------------------------------

    def _named(self, args: tuple, kwargs: dict) -> dict:
        if len(args) > len(self.signature.inputs):
            raise TypeError(f"{self.name}() takes {len(self.signature.inputs)} positional arguments, got {len(args)}")
        named = {i.name: value for i, value in zip(self.signature.inputs, args)}
        if twice := set(named) & set(kwargs):
            raise TypeError(f"{self.name}() got {sorted(twice)} twice")
        return {**named, **kwargs}

    def _refuse(self, kwargs: dict) -> None:
        """TypeError for arguments that are unknown or missing."""
        if unknown := [k for k in kwargs if k not in self._known]:
            takes = ", ".join(i.name for i in self.signature.inputs)
            raise TypeError(f"{self.name}() got an unexpected keyword argument {unknown[0]!r}; it takes {takes}, "
                            "initial_state, output_final_state, cu_seqlens, return_intermediate_states")  # fmt: skip
        if missing := [n for n in self._tensor_names if n not in kwargs]:
            raise TypeError(f"{self.name}() is missing {', '.join(map(repr, missing))}")

    def _number(self, name: str, given) -> float:
        """A scalar of a call, by default if it is None."""
        if given is None:
            given = self._defaults.get(name)
        if given is None:
            raise TypeError(f"{self.name}() is missing the number {name!r}")
        try:
            return float(given if not isinstance(given, str) else None)
        except (TypeError, ValueError, RuntimeError):  # arrays of one number are numbers, others are not
            raise TypeError(f"{self.name}: argument {name!r}: expected a number, got {given!r}") from None

    def _dtype(self, arrays, name: str, x) -> str:
        try:
            return arrays.dtype(x)
        except TypeError:
            raise TypeError(f"{self.name}: argument {name!r}: expected an array of float32, float16 or bfloat16, got {x.dtype}") from None

    def _named_arrays(self, tensors: list, initial: list | None, cu_seqlens) -> tuple[list[str], list]:
        """The arrays of a call that are there, in the order of its layout, and the arguments that they are (part of)."""
        names = [*self._tensor_names, *["initial_state"] * len(initial or []), *["cu_seqlens"] * (cu_seqlens is not None)]
        return names, [*tensors, *(initial or []), *([cu_seqlens] if cu_seqlens is not None else [])]

    def _strange_array(self, arrays, tensors: list, initial: list | None, cu_seqlens) -> TypeError:
        """The error for the first argument that is no array, or one of another library than the first."""
        names, given = self._named_arrays(tensors, initial, cu_seqlens)
        for name, x in zip(names, given):
            library, got = library_of(x), "None" if x is None else type(x).__name__
            if library is None:
                return TypeError(f"{self.name}: argument {name!r}: expected a NumPy array or a PyTorch tensor, got {got}")
            if library is not arrays:
                return TypeError(f"{self.name}: argument {name!r}: expected an array of the same library as {names[0]!r}, "
                                 f"{type(tensors[0]).__name__}, got {got}")  # fmt: skip
        return TypeError(f"{self.name}: expected arrays of one library, got {[type(x).__name__ for x in given]}")

    def _initial_states(self, given) -> list:
        names = list(self.signature.states)
        own = [n for n in names if n not in self.signature.carried]
        if isinstance(given, Mapping):
            if set(given) not in (set(names), set(own)):
                raise TypeError(f"{self.name}: argument 'initial_state': expected {names}, got {list(given)}")
            return [given[n] for n in names if n in given]
        states = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(states) not in (len(names), len(own)):
            raise TypeError(f"{self.name}: argument 'initial_state': expected {len(names)} states ({', '.join(names)}), got {len(states)}")
        return states

    # -- looking inside --------------------------------------------------------------------------------------------------------

    def compile(
        self,
        device: str | None = None,
        dtype: str = "bf16",
        sequences: int = 1,
        tokens: int = 4096,
        heads: int = 4,
        on: str | None = None,
        **sizes: int,
    ) -> _c.Compiled:
        """Compiles ahead of calls of about this shape; `sizes` are those that no ConstExpr fixes: K=128, V=128. `device`: cpu (the
        default) or a GPU of this machine. `on`: a GPU that need not be there, by the name of its facts (h200, a100, rtx4090) or the
        path of a file of such; what comes can be looked into, but not called."""
        self._last = self._compile(device, dtype, sequences, tokens, heads, on, **sizes)
        self._warn_of(self._last)
        return self._last

    def _compile(
        self, device: str | None = None, dtype: str = "bf16", sequences: int = 1, tokens: int = 4096, heads: int = 4, on: str | None = None, **sizes: int
    ) -> _c.Compiled:
        known = {s: v[0] for s, v in self._allowed.items() if s in self.signature.symbols}
        if unknown := set(sizes) - set(self.signature.symbols):
            raise TypeError(f"{self.name}: there is no size {sorted(unknown)[0]!r}; it has {', '.join(self.signature.symbols)}")
        if missing := set(self.signature.symbols) - set(known) - set(sizes):
            raise TypeError(f"{self.name}: expected the sizes {', '.join(sorted(missing))}, such as {sorted(missing)[0]}=128")
        device = device or ("cuda" if on else "cpu")
        return self._compiled_for(device, dtype, {**known, **sizes}, sequences, tokens, heads, on=on)

    def _seen(self) -> _c.Compiled | None:
        """What the last call used, or before the first one `compile` or `check`."""
        plan = self._latest[1]
        return self._last if plan is None else plan.compiled

    def _chosen(self, options: dict) -> _c.Compiled:
        """What the last call used; with options, that with these changes."""
        last = self._seen()
        if last is not None and not options:
            return last
        if last is None:
            return self._compile(**options)
        moved = {"device": None, "on": None} if {"device", "on"} & set(options) else {}
        return self._compile(**{**last.request, **moved, **options})

    @property
    def info(self) -> dict:
        """What include/forge_c.h's forge_describe says of what the last call used: device, strategy, kernels, sizes, …"""
        return self._chosen({}).info

    def explain(self, **options) -> str:
        """Every stage of the compiler and the schedule with its reasons: of the last call. Options as those of `compile` change
        what is explained: explain(on="h200")."""
        return self._chosen(options).explain()

    def source(self, **options) -> str:
        """The generated source code: of the last call, with the changes of options as those of `compile`."""
        return "\n".join(f"// {name}\n{text}" for name, text in self._chosen(options).sources().items())

    def resources(self, **options) -> list[dict]:
        """Registers and spilled bytes of a GPU's kernels, by its assembler: of the last call, with the changes of options as those
        of `compile`. With `on` this is what compiles them; RuntimeError where there is neither NVRTC nor nvcc."""
        return self._chosen(options).resources()

    def check(self, **options) -> _measure.CheckReport:
        """Runs awkward problems (ragged, packed, empty, strong gates, …) on the CPU and compares them in float64 with `step`,
        or with the three phases where a definition has no step. The report prints as a table, and is true if all is right."""
        options = {"dtype": "f32", **options}
        sizes = {s: 32 for s in self.signature.symbols if s not in self._allowed and s not in options}
        return _measure.CheckReport(self.name, self.compile(**{**sizes, **options}).check())

    def benchmark(
        self, B: int = 1, T: int = 4096, H: int = 8, device: str = "cpu", dtype: str = "bf16", runs: int = 20, **sizes: int
    ) -> _measure.Timing:
        """Times calls on random inputs of [B, T, H, …] (NumPy's or PyTorch's, whichever is there; PyTorch's on a GPU). Sizes that
        are not given are those of the last call, or 64."""
        last = self._seen()
        known = dict.fromkeys(self.signature.symbols, 64) | (last.info["sizes"] if last else {}) | {s: v[0] for s, v in self._allowed.items()}
        return _measure.benchmark(self, B, T, H, device, dtype, runs, {**known, **sizes})


class LinearAttention(Attention):
    """A variant from three functions over one chunk of tokens of one head, and, to check against, its recurrence.

    input_meta    name -> SymbTensor, or a number for a scalar with a default; 'prev_s' declares the state (of several: 'prev_<name>')
    chunk_mode    inputs -> the chunk's own contribution to the state
    decay_mode    prev_s, chunk_state, inputs -> the state after the chunk
    merge_mode    inputs, chunk_state (the state before the chunk) -> the output
    step          optional: inputs of one token, prev_s -> (next state, output): the specification that `check` holds the rest to
    chunk         optional: the tokens per chunk (16, 32, 64 or 128) of a definition whose results depend on it; else Forge chooses
    enable_aot    compile now, for every combination of the values of ConstExpr, and keep the sources in `code_dir`
    code_dir      where generated sources and compiled kernels are kept (default: the cache directory)
    sp_group      a process group for sequence parallelism
    """

    def __init__(
        self,
        input_meta: Mapping,
        sp_group=None,
        enable_aot: bool = False,
        code_dir: str | None = None,
        chunk_mode: Callable | None = None,
        decay_mode: Callable | None = None,
        merge_mode: Callable | None = None,
        *,
        step: Callable | None = None,
        chunk: int | None = None,
        name: str | None = None,
        options: Mapping | None = None,
    ):
        for phase, fn in {"chunk_mode": chunk_mode, "decay_mode": decay_mode, "merge_mode": merge_mode}.items():
            if not callable(fn):
                raise TypeError(f"LinearAttention: argument '{phase}': expected a function, got {fn!r}")
        if sp_group is not None:
            raise NotImplementedError("LinearAttention: sequence parallelism (sp_group) is not available from Python yet")
        if chunk is not None and chunk not in (16, 32, 64, 128):
            raise ValueError(f"LinearAttention: argument 'chunk': expected 16, 32, 64 or 128 tokens, got {chunk!r}")
        meta = Meta(input_meta, Location.of_caller())
        phases = {"chunk": chunk_mode, "decay": decay_mode, "merge": merge_mode, "step": step}
        program = Program(name or _name_of(chunk_mode), meta, phases, chunk or 0)
        chosen = {**({"cache_dir": str(Path(code_dir) / "cache")} if code_dir else {}), **(options or {})}
        defaults = {i.name: i.default for i in meta.inputs.values() if i.default is not None}
        super().__init__(program.text, options=chosen, defaults=defaults, allowed=meta.constants)
        if enable_aot:
            self._compile_all(code_dir)

    def _compile_all(self, code_dir: str | None) -> None:
        device, dtype = _measure.default_device(), next((i.dtype for i in self.signature.tensors if i.dtype in ("bf16", "f16")), "f32")
        if missing := [s for s in self.signature.symbols if s not in self._allowed]:
            raise TypeError(f"{self.name}: enable_aot: expected a ConstExpr for {', '.join(missing)}")
        heads = max((max(self._allowed.get(h, (4,))) for h in self.signature.head_symbols), default=4)
        for values in product(*(self._allowed[s] for s in self.signature.symbols)):
            sizes = dict(zip(self.signature.symbols, values))
            compiled = self.compile(device, dtype, heads=heads, **sizes)
            if code_dir:
                folder = Path(code_dir) / "_".join([self.name, *(f"{s}{n}" for s, n in sizes.items()), dtype, device.replace(":", "")])
                folder.mkdir(parents=True, exist_ok=True)
                for name, text in compiled.sources().items():
                    (folder / name).write_text(text, encoding="utf-8")


def _one_or_all(states: list):
    return states[0] if len(states) == 1 else tuple(states)


def _name_of(chunk_mode: Callable) -> str:
    """scalar_gla for scalar_gla_chunk or chunk_scalar_gla; "attention" for functions named after their phase alone."""
    name = re.sub(r"(^|_)chunk(_mode|_fn|_fwd)?(?=_|$)", "", getattr(chunk_mode, "__name__", "")).strip("_")
    return name if name.isidentifier() and name.isascii() else "attention"
