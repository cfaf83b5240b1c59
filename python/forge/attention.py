"""Variants as callables: definitions in text form, compiled for the types, sizes and device of their calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from . import _c, _measure
from ._arguments import Arguments
from ._arrays import Library, library_of
from ._calls import Plan, chunks_of, dtype_of_call, factor_of, read_shapes, with_one_head
from ._decode import Pools, state_dtype_of
from ._gradients import Backward, run_with_gradients
from ._types import DTypeLike, dtype_name
from ._variant import CHUNK, Variant

_MOST_PLANS = 4096
_FEW_TOKENS = 16  #: per sequence, up to which `decode` reads and writes states as fast as anything else


class _WantsGradients(Exception):
    """Arguments of a call require gradients."""


class Attention(Variant):
    """A variant of linear attention: a definition in text form, compiled for the types, sizes and device of its calls.

    `options` are compile options of include/forge_c.h, such as {"strategy": "fused", "chunk": 64}; they hold for every
    call. `one_head`: arrays come and go without the axis of heads, of which there is one. Variants can be copied and
    pickled: what they have compiled stays behind, and comes from the cache.
    """

    def __init__(
        self,
        definition: str,
        *,
        options: Mapping[str, Any] | None = None,
        defaults: Mapping[str, float] | None = None,
        allowed: Mapping[str, tuple[int, ...]] | None = None,
        one_head: bool = False,
        sp_group: Any = None,
    ) -> None:
        super().__init__(definition, options, allowed, sp_group)
        self._arguments = {entry: Arguments(self.signature, defaults or {}, entry) for entry in ("forward", "decode")}
        self._one_head = one_head

    def _forget(self) -> None:
        """Begins without anything compiled."""
        super()._forget()
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._latest: tuple[Any, Plan | None] = (None, None)  #: the last call's key and plan
        self._backward_passes: dict[tuple[frozenset[str] | None, bool, bool], Backward] = {}

    def __getstate__(self) -> dict[str, Any]:
        of_this_process = (
            "_compiled", "_packages", "_plans", "_latest", "_backward_passes", "_warned", "_last", "_lock",
        )  # fmt: skip
        return {name: value for name, value in self.__dict__.items() if name not in of_this_process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __repr__(self) -> str:
        return f"<forge.Attention {self.name}({', '.join(i.name for i in self.signature.inputs)})>"

    def __dir__(self) -> list[str]:
        return [n for n in object.__dir__(self) if not n.startswith("_")]

    # -- calling -------------------------------------------------------------------------------------------------------

    def __call__(
        self,
        *args: Any,
        initial_state: Any = None,
        output_final_state: bool = False,
        cu_seqlens: Any = None,
        return_intermediate_states: bool = False,
        checkpoints: tuple[Any, Any] | None = None,
        partition: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """(output, final state): the outputs, and the states after the last tokens or None.

        Arrays are NumPy's or PyTorch's, of any strides: token inputs [B, T, heads, …], or [T, heads, …] for one
        sequence or packed ones. States are float32 [N, heads, …], N the sequences; of several states, a tuple in the
        order of declaration (or, going in, a dictionary). Where the definition reads prev_token(x), one more state
        follows them, last_x: the rows of x's last token, with x's heads. Going in, all of these may be left out: the
        first token then looks back to the pad value. `cu_seqlens`: int32 or int64 [N + 1], offsets of packed sequences
        in tokens, on the device of the inputs. Several outputs come as a tuple. Outputs have the type and device of the
        inputs. Nothing is copied but what kernels cannot read: arrays in another byte order or off their alignment, and
        states that are not float32.

        With `return_intermediate_states` a third result: the states before every chunk of 64 tokens (or of
        `options["chunk"]`), float32 [B, chunks, heads, …], or [chunks, heads, …] where the inputs have no batch; packed
        sequences have theirs in a row, for which `cu_seqlens` is read on the host.

        `checkpoints`: (pools, slots), where some of these states go instead, as caches of prefixes want them: pools as
        of `decode`, float32 [slots, heads, …], and int32 or int64 [B, chunks], or [chunks] where the inputs have no
        batch or are packed: the slot of the state before each chunk, -1 where it is not wanted. With the option
        batch_invariant they are bit for bit what a call that stops there returns.

        With `sp_group` the arrays have this rank's tokens of every sequence. `partition`
        (forge.distributed.partition) takes the place of `cu_seqlens` for packed sequences: what crosses the borders of
        the rank's part goes on. Initial states enter where sequences begin, and final states are those after the
        rank's last token. All ranks call alike, and differentiate alike.
        """
        arguments = self._arguments["forward"]
        tensors, scalars = arguments.inputs(args, kwargs)
        initial = arguments.states(initial_state) if initial_state is not None else None
        border = None
        if self._sp_group is not None or partition is not None:
            from .distributed import border_of

            if self._sp_group is None and self._ahead is not None:
                raise arguments.error("partition", "expected sp_group= where the definition is compiled ahead of time")
            border, cu_seqlens = border_of(self.name, self._sp_group, partition, cu_seqlens)
        if checkpoints is None:
            results = self._run(
                tensors,
                scalars,
                initial,
                output_final_state,
                cu_seqlens,
                CHUNK if return_intermediate_states else 0,
                border,
            )
        elif return_intermediate_states or border is not None:
            other = "sp_group" if border is not None else "return_intermediate_states"
            raise arguments.error("checkpoints", f"expected no {other} with it")
        else:
            results = self._run_with_checkpoints(tensors, scalars, initial, output_final_state, cu_seqlens, checkpoints)
        count = len(self.signature.outputs)
        outputs, states = results[:count], results[count:]
        output = _one_or_all(outputs)
        final_count = len(self.signature.states) if output_final_state else 0
        final = _one_or_all(states[:final_count]) if output_final_state else None
        if not return_intermediate_states:
            return output, final
        return output, final, _one_or_all(states[final_count:])

    def decode(
        self,
        *args: Any,
        state: Any,
        slots: Any = None,
        cu_seqlens: Any = None,
        return_intermediate_states: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The outputs of a few more tokens of each sequence, computed by `step` token by token, in one kernel; their
        states are read and written in place. Several outputs come as a tuple.

        Inputs are those of a call, [B, T, heads, …] (T may be 1), or [T, heads, …] for one sequence or, with
        `cu_seqlens`, packed ones. `state`: pools [slots, heads, …]: an array, or of several states a tuple in the order
        of declaration or a dictionary; float32, or all bfloat16 or float16, which halves what decoding moves: they are
        computed with in float32. Those that follow from prev_token, last_x, float32, are among them. Nothing is
        converted: an array that kernels cannot write where it lies is refused. `slots`: int32 or int64 [N] on the
        device of the inputs: the slot of each sequence, no slot twice. A sequence with slot -1 is skipped: its outputs
        are zero, no state changes. Without `slots` sequence n has slot n. On a GPU slots are not checked, and the
        states of sequences that share one are undefined.

        With `return_intermediate_states` (outputs, states before every token): float32 [B, T, heads, …], or [T, heads,
        …] where the inputs have no batch, without last_x; of skipped sequences they are undefined. To take back all but
        the first t tokens, t < T, write those before token t into the slots, and the rows of x's token t - 1 into those
        of last_x.

        The options strategy, chunk, tiles, segments and engine are for calls; they are left out here.
        """
        arguments = self._arguments["decode"]
        tensors, scalars = arguments.inputs(args, kwargs)
        states, arrays = arguments.states(state), library_of(tensors[0])
        before_tokens = (self._tokens(tensors[0]), 1) if return_intermediate_states and arrays is not None else None
        plan = self._plan(arrays, tensors, states, False, cu_seqlens, before_tokens, "decode", slots)
        try:
            results = plan.run(tensors, scalars, states, cu_seqlens, slots)
        except _c.RuntimeError as wrong:
            raise _c.RuntimeError(re.sub("'(initial|final)_slots'", "'slots'", str(wrong))) from None
        count = len(self.signature.outputs)
        output = _one_or_all(results[:count])
        return (output, _one_or_all(results[count:])) if return_intermediate_states else output

    def vjp(
        self, *args: Any, initial_state: Any = None, cu_seqlens: Any = None, **kwargs: Any
    ) -> tuple[tuple[Any, Any], Callable[..., dict[str, Any]]]:
        """((outputs, final states), pullback), in the arguments of a call, of NumPy or of PyTorch (whose autograd needs
        no vjp: calls are differentiable).

        `pullback(grad_output, grad_final_state=None)` takes the gradients of what a call returns, of the same shapes,
        and gives those of everything that it takes, a dictionary by the names of inputs and states: of token inputs and
        of inputs per head in their shapes and types, of numbers a number, of states float32 [N, heads, …] whether
        `initial_state` was given or not. Sums over tokens, sequences and heads that share an input are made in float32
        and in a fixed order.
        """
        arguments = self._arguments["forward"]
        tensors, scalars = arguments.inputs(args, kwargs)
        initial = arguments.states(initial_state) if initial_state is not None else None
        results = self._run(tensors, scalars, initial, True, cu_seqlens)
        count = len(self.signature.outputs)

        def pullback(grad_output: Any, grad_final_state: Any = None) -> dict[str, Any]:
            given = list(grad_output) if isinstance(grad_output, (tuple, list)) else [grad_output]
            if len(given) != count:
                raise arguments.error("grad_output", f"expected {count} of outputs, got {len(given)}")
            final = [] if grad_final_state is None else arguments.states(grad_final_state)
            return self._backward().run(tensors, scalars, initial, cu_seqlens, given, final)

        return (_one_or_all(results[:count]), _one_or_all(results[count:])), pullback

    def _backward(
        self, of: frozenset[str] | None = None, from_states: bool = False, to_inputs: bool = False
    ) -> Backward:
        """Of these inputs, or of all; `from_states`: from the states before chunks that the forward pass has kept;
        `to_inputs`: without gradients of states."""
        key = of, from_states, to_inputs
        if key not in self._backward_passes:
            self._backward_passes[key] = Backward(self, of, from_states, to_inputs)
        return self._backward_passes[key]

    def _keeps_states(self, first: Any) -> bool:
        """Whether a forward pass keeps the states before chunks for its backward pass: on the CPU, in chunks of a
        length that nothing else decides."""
        if self._checkpoint == "remake":
            return False
        decided = any(self.options.get(name) for name in ("strategy", "segments", "batch_invariant"))
        fixed = "chunk=" in self.definition.partition("{")[0]
        counted = bool(self.signature.states) and self.signature.tensors[0].kind == "input"  # which has the tokens
        can = counted and not (decided or fixed or self._ahead or getattr(first, "is_cuda", False))
        if self._checkpoint == "keep" and not can:
            raise _c.RuntimeError(
                f"{self.name}: options['checkpoint']: expected auto or remake on a GPU, from a package, with strategy, "
                "segments, batch_invariant or a fixed chunk, and where the first input has no tokens, got keep"
            )
        return can

    def _run(
        self,
        tensors: list[Any],
        scalars: list[float],
        initial: list[Any] | None,
        final: bool,
        cu_seqlens: Any,
        before_chunks: int = 0,
        border: Any = None,
        recurrent: bool = False,
        kept: list[Any] | None = None,
    ) -> list[Any]:
        """The outputs, then the final states if `final`, then the states before chunks of as many tokens as
        `before_chunks` says, or as the options do; not if it is 0. All arguments, and what
        `initial` has, in the order of declaration. `border`: of a call of several ranks. `recurrent`: few tokens go one
        by one, in one kernel; none of this is in place. `kept`: of a backward pass, the states before chunks."""
        arrays = library_of(tensors[0])
        if border is not None and getattr(tensors[0], "is_cuda", False) and not getattr(cu_seqlens, "is_cuda", True):
            cu_seqlens = cu_seqlens.to(tensors[0].device)  # a partition's, made on the host
        chunks = None
        if before_chunks and arrays is not None:
            chunks = self._chunks(arrays, tensors[0], cu_seqlens, before_chunks), before_chunks
        short = recurrent and final and self._is_short(arrays, tensors, initial, cu_seqlens)
        try:
            plan = self._plan(
                arrays, tensors, initial, final, cu_seqlens, chunks, "decode" if short else "forward",
                checkpoints=None if kept is None else (kept, None),
            )  # fmt: skip
        except _WantsGradients:
            if before_chunks:
                raise NotImplementedError(
                    f"{self.name}: return_intermediate_states has no gradients; call it under torch.no_grad()"
                ) from None
            return run_with_gradients(self, tensors, scalars, initial, final, cu_seqlens, border)
        if kept is not None:
            return plan.run(tensors, scalars, initial, cu_seqlens, checkpoints=(kept, None))
        if border is None:
            return plan.run(tensors, scalars, initial, cu_seqlens)
        return plan.run(tensors, scalars, initial, cu_seqlens, border=border)

    def _is_short(self, arrays: Library | None, tensors: list[Any], initial: Any, cu_seqlens: Any) -> bool:
        """Whether a call without gradients has so few tokens per sequence that its states are most of its work, and
        the kernel of `decode`, which converts no states, can take them."""
        states = list(initial or ())
        if arrays is None or arrays.wants_gradients([*tensors, *states]):
            return False
        if any(library_of(x) is not arrays or arrays.dtype(x) != "f32" or arrays.refusal_in_place(x) for x in states):
            return False
        sequences = cu_seqlens.shape[0] - 1 if cu_seqlens is not None and len(cu_seqlens.shape) == 1 else 1
        return self._tokens(tensors[0]) <= _FEW_TOKENS * max(1, sequences)

    def _run_with_checkpoints(
        self, tensors: list[Any], scalars: list[float], initial: list[Any] | None, final: bool, cu_seqlens: Any,
        checkpoints: Any,
    ) -> list[Any]:  # fmt: skip
        arrays, arguments = library_of(tensors[0]), self._arguments["forward"]
        if arrays is None:
            raise arguments.strange_array(arrays, tensors, initial, cu_seqlens)
        if not isinstance(checkpoints, (tuple, list)) or len(checkpoints) != 2:
            raise arguments.error("checkpoints", f"expected (pools, slots), got {type(checkpoints).__name__}")
        pools, slots = arguments.checkpoint_pools(arrays, tensors[0], checkpoints[0]), checkpoints[1]
        arguments.check_checkpoint_slots(arrays, tensors[0], slots)
        try:
            plan = self._plan(arrays, tensors, initial, final, cu_seqlens, checkpoints=(pools, slots))
        except _WantsGradients:
            raise NotImplementedError(
                f"{self.name}: checkpoints have no gradients; call it under torch.no_grad()"
            ) from None
        return plan.run(tensors, scalars, initial, cu_seqlens, checkpoints=(pools, slots))

    def _chunks(self, arrays: Library, first: Any, cu_seqlens: Any, length: int) -> int:
        """How many states before chunks of this length a call has; `first`: its first tensor."""
        if cu_seqlens is not None:
            self._arguments["forward"].check_integers(arrays, "cu_seqlens", cu_seqlens)
        return chunks_of(self.name, self._tokens(first), cu_seqlens, int(self.options.get("chunk") or length))

    def _tokens(self, first: Any) -> int:
        """The tokens of a call whose first tensor this is."""
        if (i := self.signature.tensors[0]).kind != "input":
            raise _c.RuntimeError(
                f"{self.name}: return_intermediate_states: expected an input of tokens first, got {i.kind}"
            )
        axis = first.ndim - len(i.dims) + (1 if self._one_head else 0)
        return (
            first.shape[axis] // factor_of(i.dims[0]) if 0 <= axis < first.ndim else 0
        )  # other shapes are refused soon

    def _plan(
        self, arrays: Library | None, tensors: list[Any], initial: list[Any] | None, final: bool, cu_seqlens: Any,
        chunks: tuple[int, int] | None = None, entry: str = "forward", slots: Any = None, checkpoints: Any = None,
    ) -> Plan:  # fmt: skip
        """What calls with arguments of these layouts run; _WantsGradients where it must be differentiable. `chunks`:
        how many states before chunks are wanted, and the length of these."""
        given = tensors
        if initial is not None or cu_seqlens is not None:
            given = [*tensors, *(initial or ()), *(x for x in (cu_seqlens, slots) if x is not None)]
        arguments = self._arguments[entry]
        if arrays is None:
            raise arguments.strange_array(arrays, tensors, initial, cu_seqlens, slots)
        try:
            key = entry, final, initial is None, cu_seqlens is None, slots is None, chunks, arrays.layouts(given)
        except AttributeError:
            raise arguments.strange_array(arrays, tensors, initial, cu_seqlens, slots) from None
        if checkpoints is not None:
            key = *key[:-1], (key[-1], arrays.layouts([x for x in (*checkpoints[0], checkpoints[1]) if x is not None]))
        if arrays.wants_gradients(given):
            if entry != "decode":
                raise _WantsGradients
            raise NotImplementedError(
                f"{self.name}: decode has no gradients; call it under torch.no_grad(), or detach the inputs"
            )
        known, plan = self._latest
        if plan is None or key != known:  # comparing is faster than hashing
            plan = self._plans.get(key) or self._new_plan(
                key, arrays, tensors, initial, final, cu_seqlens, chunks, entry, slots, checkpoints
            )
            self._latest = key, plan
        return plan

    def _new_plan(
        self, key: tuple[Any, ...], arrays: Library, tensors: list[Any], initial: list[Any] | None, final: bool,
        cu_seqlens: Any, chunks: tuple[int, int] | None, entry: str, slots: Any, checkpoints: Any = None,
    ) -> Plan:  # fmt: skip
        in_place = entry == "decode" and not final
        arguments = self._arguments[entry]
        read, (offsets, slots_entry), conversions = arguments.read(arrays, tensors, initial, cu_seqlens, slots)
        inputs, states = read[: len(tensors)], read[len(tensors) :]
        if self._one_head:
            inputs = [
                with_one_head(e, len(i.dims) - (2 if i.kind == "input" else 1))
                for e, i in zip(inputs, self.signature.tensors)
            ]
            states = [with_one_head(e, len(dims)) for e, dims in zip(states, self.signature.states.values())]
        sequences = cu_seqlens.shape[0] - 1 if cu_seqlens is not None else None
        shape = read_shapes(self.signature, [size for _, size, _ in inputs], self._allowed, sequences)
        arguments.check_sequences(shape.sequences, read[len(tensors) :], slots_entry)
        pools = Pools(self.name, list(self.signature.states), states) if in_place else None
        kept = checkpoints is not None and checkpoints[1] is None
        has_chunks = chunks is not None or (checkpoints is not None and not kept)
        more = self._of_chunks(entry, chunks[1] if chunks else 0) if has_chunks else {}
        if in_place:
            stored = state_dtype_of(self.name, list(self.signature.states), self.signature.carried, states)
            more = more if stored == "f32" else {**more, "state_dtype": stored}
        compiled = self._compiled_for(
            arrays.device(tensors[0]), dtype_of_call(self.signature, [d for d, _, _ in inputs]), shape.sizes,
            shape.sequences, shape.tokens, shape.most_heads, cu_seqlens is not None, entry=entry, more=more,
        )  # fmt: skip
        self._warn_of(compiled)

        def entry_of(x: Any) -> Any:
            return arrays.dtype(x), tuple(x.shape), arrays.strides(x)

        def state_entry(x: Any, axes: int) -> Any:
            return with_one_head(entry_of(x), axes) if self._one_head else entry_of(x)

        of_chunks = None
        if checkpoints is not None:
            axes = [len(t["shape"]) - 2 for t in compiled.tensors if t["kind"] == "chunk_state"]
            of_chunks = (
                [state_entry(x, n) for x, n in zip(checkpoints[0], axes)],
                None if kept else entry_of(checkpoints[1]),
            )

        plan = Plan(
            compiled, shape, arrays, tensors[0], inputs, states if initial is not None else None, final, offsets,
            self._one_head, chunks[0] if chunks else None, conversions, pools, slots_entry,
            of_chunks,
        )  # fmt: skip
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    # -- looking inside ------------------------------------------------------------------------------------------------

    def _seen(self) -> _c.Compiled | None:
        """What the last call used, or before the first one `compile` or `check`."""
        plan = self._latest[1]
        return super()._seen() if plan is None else plan.compiled

    def benchmark(
        self,
        B: int = 1,
        T: int = 4096,
        H: int = 8,
        device: str = "cpu",
        dtype: DTypeLike = "bf16",
        runs: int = 20,
        **sizes: int,
    ) -> _measure.Timing:
        """Times calls on random inputs of [B, T, H, …] (NumPy's or PyTorch's, whichever is there; PyTorch's on a GPU).
        Sizes that are not given are those of the last call, or 64."""
        self._check_sizes(
            {s: n for s, n in sizes.items() if s not in self.signature.head_symbols}, ("device", "dtype", "runs")
        )
        for name, n, least in (("B", B, 0), ("T", T, 0), ("H", H, 1), ("runs", runs, 1)):
            if n < least:
                raise ValueError(f"{self.name}: argument {name!r}: expected at least {least}, got {n}")
        last = self._seen()
        known = (
            dict.fromkeys(self.signature.symbols, 64)
            | (last.info["sizes"] if last else {})
            | {s: v[0] for s, v in self._allowed.items()}
        )
        return _measure.benchmark(self, B, T, H, device, dtype_name(dtype), runs, {**known, **sizes})


def _one_or_all(states: list[Any]) -> Any:
    return states[0] if len(states) == 1 else tuple(states)
