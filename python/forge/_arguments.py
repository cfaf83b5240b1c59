"""The arguments of calls: their names, and what is right for each; errors in the user's words for all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _c
from ._arrays import Library, library_of
from ._calls import Entry, Signature
from ._suggest import suggestion
from ._types import HALF

#: What every variant takes besides its inputs, states first: of calls, and of `decode`.
KEYWORDS = {
    "forward": ("initial_state", "output_final_state", "cu_seqlens", "return_intermediate_states", "checkpoints"),
    "decode": ("state", "slots", "cu_seqlens", "return_intermediate_states"),
}
_FLOATS = ("f32", "bf16", "f16", "f64")


class Arguments:
    """What a variant is called with, or its `decode`, where states are read and written in place."""

    def __init__(self, signature: Signature, defaults: Mapping[str, float], entry: str = "forward") -> None:
        self.signature, self.defaults, self.keywords = signature, dict(defaults), KEYWORDS[entry]
        self.in_place, self.state = entry == "decode", self.keywords[0]
        self.call = f"{signature.name}.decode" if self.in_place else signature.name  #: as it is written, for errors
        self.tensors = [i.name for i in signature.tensors]
        self.scalars = [i.name for i in signature.scalars]

    def error(self, argument: str, text: str) -> TypeError:
        return TypeError(f"{self.signature.name}: argument {argument!r}: {text}")

    # -- by name -------------------------------------------------------------------------------------------------------

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments in order, and those by name."""
        name, inputs = self.call, self.signature.inputs
        if len(args) > len(inputs):
            raise TypeError(f"{name}() takes {len(inputs)} positional arguments, got {len(args)}")
        named = {i.name: value for i, value in zip(inputs, args)}
        if twice := set(named) & set(kwargs):
            raise TypeError(f"{name}() got {sorted(twice)} twice")
        return {**named, **kwargs}

    def refuse(self, kwargs: Mapping[str, Any]) -> None:
        """TypeError for arguments that are unknown or missing."""
        name, inputs = self.call, [i.name for i in self.signature.inputs]
        if unknown := [k for k in kwargs if k not in inputs]:
            likely = suggestion(unknown[0], [*(n for n in inputs if n not in kwargs), *self.keywords])
            takes = ", ".join([*inputs, *self.keywords])
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown[0]!r}{likely}; it takes {takes}")
        if missing := [n for n in self.tensors if n not in kwargs]:
            raise TypeError(f"{name}() is missing {', '.join(map(repr, missing))}")

    def number(self, name: str, kwargs: Mapping[str, Any]) -> float:
        """A scalar of a call. None stands for its default, if it has one."""
        given = kwargs.get(name)
        if given is None:
            if name in self.defaults:
                return self.defaults[name]
            if name not in kwargs:
                raise TypeError(f"{self.call}() is missing the number {name!r}")
            raise self.error(name, "expected a number, got None; the definition has no default for it")
        try:
            if (
                isinstance(given, (str, bytes))
                or hasattr(given, "mask")
                or "complex" in str(getattr(given, "dtype", ""))
            ):
                raise TypeError  # float() would take the text's number, the masked number, the real part
            return float(given)  # arrays of one number are numbers, others are not
        except (TypeError, ValueError, RuntimeError):
            raise self.error(name, f"expected a number, got {given!r}") from None

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[float]]:
        """The tensors and the numbers of a call, in the order of declaration."""
        if args:
            kwargs = self.named(args, kwargs)
        try:
            tensors = [kwargs[name] for name in self.tensors]
        except KeyError:
            self.refuse(kwargs)
            raise
        if len(kwargs) > len(tensors):
            self.refuse(kwargs)
        return tensors, [
            x if type(x) is float else self.number(name, kwargs) for name in self.scalars for x in (kwargs.get(name),)
        ]

    def states(self, given: Any) -> list[Any]:
        """One or several, in order or by name, in the order of declaration. Those that follow from prev_token may be
        left out, but not in place: what they would have become is lost."""
        names, carried = list(self.signature.states), self.signature.carried
        if len(names) == 1 and hasattr(given, "shape"):  # most calls have one array
            return [given]
        own = [n for n in names if n not in carried]
        why = f"; the next call looks back to {', '.join(carried)}" if self.in_place and carried else ""
        if isinstance(given, Mapping):
            if set(given) != set(names) and (self.in_place or set(given) != set(own)):
                unknown = [n for n in given if n not in names]
                raise self.error(
                    self.state,
                    f"expected {names}, got {list(given)}{suggestion(unknown[0], names) if unknown else why}",
                )
            return [given[n] for n in names if n in given]
        if isinstance(given, (tuple, list)) and any(
            isinstance(x, (int, float, tuple, list)) for x in given
        ):  # an array's contents
            raise self.error(self.state, f"expected a NumPy array or a PyTorch tensor, got {type(given).__name__}")
        states = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(states) != len(names) and (self.in_place or len(states) != len(own)):
            raise self.error(self.state, f"expected {len(names)} states ({', '.join(names)}), got {len(states)}{why}")
        return states

    # -- as arrays -----------------------------------------------------------------------------------------------------

    def _arrays(
        self, tensors: Sequence[Any], states: Sequence[Any] | None, cu_seqlens: Any, slots: Any
    ) -> list[tuple[int, str, Any]]:
        """The arrays of a call that are there, in the order of its layout: their numbers in (inputs, states,
        cu_seqlens, slots), and the arguments that they are (part of)."""
        given = [*zip(self.tensors, tensors), *((self.state, x) for x in states or ())]
        others = [(name, x) for name, x in (("cu_seqlens", cu_seqlens), ("slots", slots)) if x is not None]
        numbers = {"cu_seqlens": len(given), "slots": len(given) + 1}
        return [
            *((number, *named) for number, named in enumerate(given)),
            *((numbers[name], name, x) for name, x in others),
        ]

    def strange_array(
        self,
        arrays: Library | None,
        tensors: Sequence[Any],
        states: Sequence[Any] | None,
        cu_seqlens: Any,
        slots: Any = None,
    ) -> TypeError:
        """The error for the first argument that is no array, or one of another library than the first."""
        given = self._arrays(tensors, states, cu_seqlens, slots)
        for _, name, x in given:
            library, got = library_of(x), "None" if x is None else type(x).__name__
            if library is None:
                return self.error(name, f"expected a NumPy array or a PyTorch tensor, got {got}")
            if library is not arrays:
                return self.error(
                    name,
                    f"expected an array of the same library as {self.tensors[0]!r}, {type(tensors[0]).__name__}, got "
                    f"{got}",
                )
        return TypeError(
            f"{self.signature.name}: expected arrays of one library, got {[type(x).__name__ for _, _, x in given]}"
        )

    def check_integers(self, arrays: Library, name: str, x: Any) -> None:
        """Errors for a cu_seqlens, or slots, of another type or shape."""
        if library_of(x) is not arrays:
            raise self.error(name, f"expected a NumPy array or a PyTorch tensor, got {type(x).__name__}")
        try:
            dtype = arrays.dtype(x)
        except TypeError:
            dtype = str(x.dtype)
        least, meaning = (
            (1, "[N + 1], offsets from 0 to the number of tokens")
            if name == "cu_seqlens"
            else (0, "[N], a slot for each sequence")
        )
        if len(x.shape) != 1 or x.shape[0] < least or dtype not in ("i32", "i64"):
            raise ValueError(
                f"{self.signature.name}: argument {name!r}: expected int32 or int64 {meaning}, got {dtype} "
                f"{list(x.shape)}"
            )
        self._conversion(arrays, name, x)

    def read(
        self, arrays: Library, tensors: Sequence[Any], states: Sequence[Any] | None, cu_seqlens: Any, slots: Any = None
    ) -> tuple[list[Entry], tuple[Entry | None, Entry | None], tuple[tuple[int, Any], ...]]:
        """What kernels are given of inputs and states, of cu_seqlens and slots if they are there, and (number,
        function) of those, in this order, that are converted for them."""
        given = self._arrays(tensors, states, cu_seqlens, slots)
        if any(library_of(x) is not arrays for _, _, x in given):
            raise self.strange_array(arrays, tensors, states, cu_seqlens, slots)
        device, conversions = arrays.device(tensors[0]), []
        entries: dict[int, Entry] = {}
        for number, name, x in given:
            if name in ("cu_seqlens", "slots"):
                self.check_integers(arrays, name, x)
            if arrays.device(x) != device:
                raise _c.RuntimeError(
                    f"{self.signature.name}: argument {name!r}: expected an array on {device} as {self.tensors[0]!r}, "
                    f"got one on {arrays.device(x)}"
                )
            convert = self._conversion(arrays, name, x)
            if convert is not None:
                conversions.append((number, convert))
                x = convert(x)
            entries[number] = arrays.dtype(x), tuple(x.shape), arrays.strides(x)
        count = len(tensors) + len(states or ())
        return (
            [entries[number] for number in range(count)],
            (entries.get(count), entries.get(count + 1)),
            tuple(conversions),
        )

    def checkpoint_pools(self, arrays: Library, first: Any, pools: Any) -> list[Any]:
        """The pools of a call's checkpoints, one for each state, which kernels can write; `first`: its first tensor."""
        given, names = list(pools) if isinstance(pools, (tuple, list)) else [pools], list(self.signature.states)
        if len(given) != len(names):
            raise self.error("checkpoints", f"expected pools of {', '.join(names)}, got {len(given)}")
        for name, x in zip(names, given):
            if library_of(x) is not arrays:
                raise self.error("checkpoints", f"{name}: expected an array as the inputs are, got {type(x).__name__}")
            if arrays.dtype(x) != "f32" or arrays.refusal_in_place(x) or arrays.device(x) != arrays.device(first):
                raise self.error(
                    "checkpoints",
                    f"{name}: expected a pool of float32 on {arrays.device(first)} that can be written, got {x.dtype} "
                    f"on {arrays.device(x)}",
                )
        return given

    def check_checkpoint_slots(self, arrays: Library, first: Any, slots: Any) -> None:
        if library_of(slots) is not arrays or arrays.dtype(slots) not in ("i32", "i64"):
            raise self.error("checkpoints", f"slots: expected an array of int32 or int64, got {type(slots).__name__}")
        if arrays.device(slots) != arrays.device(first) or arrays.conversion(slots, dense=True) is not None:
            raise self.error("checkpoints", f"slots: expected a dense array on {arrays.device(first)}")

    def check_sequences(self, sequences: int, states: Sequence[Entry], slots: Entry | None) -> None:
        """Errors for another number of states, or of slots where states are in place, than of sequences."""
        if slots is not None and slots[1] != (sequences,):
            raise ValueError(
                f"{self.signature.name}: argument 'slots': expected {sequences} slots, one per sequence, got shape "
                f"{list(slots[1])}"
            )
        for _, shape, _ in states:
            if not self.in_place and shape[:1] != (sequences,):
                raise ValueError(
                    f"{self.signature.name}: argument 'initial_state': expected {sequences} states, one per sequence, "
                    f"got shape {list(shape)}"
                )

    def _conversion(self, arrays: Library, name: str, x: Any) -> Any:
        """What makes an array that kernels can read of x; None where x is one."""
        is_state = name == self.state
        try:
            dtype = arrays.dtype(x)
        except TypeError:
            raise self.error(name, f"expected an array of float32, float16 or bfloat16, got {x.dtype}") from None
        if is_state and self.in_place:
            return self._refuse_conversion(arrays, x)
        if is_state and dtype not in _FLOATS:
            raise self.error(name, f"expected an array of floating-point numbers, got {x.dtype}")
        try:
            return arrays.conversion(x, to_float32=is_state, dense=name == "slots")
        except TypeError as refused:
            raise self.error(name, str(refused)) from None

    def _refuse_conversion(self, arrays: Library, x: Any) -> None:
        """TypeError for a state that kernels cannot write where it lies."""
        expected = "expected float32, bfloat16 or float16, written in place"
        if arrays.dtype(x) not in ("f32", *HALF):
            raise self.error(self.state, f"{expected}, got {x.dtype}")
        if why := arrays.refusal_in_place(x):
            raise self.error(self.state, f"{expected}, got {why}")
