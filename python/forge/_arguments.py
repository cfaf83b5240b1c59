"""The arguments of calls: their names, and what is right for each; errors in the user's words for all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _c
from ._arrays import Library, library_of
from ._calls import Entry, Signature
from ._suggest import suggestion

#: What every variant takes besides its inputs.
KEYWORDS = ("initial_state", "output_final_state", "cu_seqlens", "return_intermediate_states")
_FLOATS = ("f32", "bf16", "f16", "f64")


class Arguments:
    """What a variant is called with."""

    def __init__(self, signature: Signature, defaults: Mapping[str, float]) -> None:
        self.signature, self.defaults = signature, dict(defaults)
        self.tensors = [i.name for i in signature.tensors]
        self.scalars = [i.name for i in signature.scalars]

    def error(self, argument: str, text: str) -> TypeError:
        return TypeError(f"{self.signature.name}: argument {argument!r}: {text}")

    # -- by name -----------------------------------------------------------------------------------------------------------

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments in order, and those by name."""
        name, inputs = self.signature.name, self.signature.inputs
        if len(args) > len(inputs):
            raise TypeError(f"{name}() takes {len(inputs)} positional arguments, got {len(args)}")
        named = {i.name: value for i, value in zip(inputs, args)}
        if twice := set(named) & set(kwargs):
            raise TypeError(f"{name}() got {sorted(twice)} twice")
        return {**named, **kwargs}

    def refuse(self, kwargs: Mapping[str, Any]) -> None:
        """TypeError for arguments that are unknown or missing."""
        name, inputs = self.signature.name, [i.name for i in self.signature.inputs]
        if unknown := [k for k in kwargs if k not in inputs]:
            likely = suggestion(unknown[0], [*(n for n in inputs if n not in kwargs), *KEYWORDS])
            takes = ", ".join([*inputs, *KEYWORDS])
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
                raise TypeError(f"{self.signature.name}() is missing the number {name!r}")
            raise self.error(name, "expected a number, got None; the definition has no default for it")
        try:
            if isinstance(given, (str, bytes)) or hasattr(given, "mask") or "complex" in str(getattr(given, "dtype", "")):
                raise TypeError  # float() would take the text's number, the masked number, the real part
            return float(given)  # arrays of one number are numbers, others are not
        except (TypeError, ValueError, RuntimeError):
            raise self.error(name, f"expected a number, got {given!r}") from None

    def initial_states(self, given: Any) -> list[Any]:
        """One or several, in order or by name, in the order of declaration."""
        names = list(self.signature.states)
        own = [n for n in names if n not in self.signature.carried]
        if isinstance(given, Mapping):
            if set(given) not in (set(names), set(own)):
                unknown = [n for n in given if n not in names]
                raise self.error("initial_state", f"expected {names}, got {list(given)}{suggestion(unknown[0], names) if unknown else ''}")
            return [given[n] for n in names if n in given]
        if isinstance(given, (tuple, list)) and any(isinstance(x, (int, float, tuple, list)) for x in given):  # an array's contents
            raise self.error("initial_state", f"expected a NumPy array or a PyTorch tensor, got {type(given).__name__}")
        states = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(states) not in (len(names), len(own)):
            raise self.error("initial_state", f"expected {len(names)} states ({', '.join(names)}), got {len(states)}")
        return states

    # -- as arrays ---------------------------------------------------------------------------------------------------------

    def _arrays(self, tensors: Sequence[Any], initial: Sequence[Any] | None, cu_seqlens: Any) -> tuple[list[str], list[Any]]:
        """The arrays of a call that are there, in the order of its layout, and the arguments that they are (part of)."""
        names = [*self.tensors, *["initial_state"] * len(initial or ()), *["cu_seqlens"] * (cu_seqlens is not None)]
        return names, [*tensors, *(initial or ()), *([cu_seqlens] if cu_seqlens is not None else [])]

    def strange_array(self, arrays: Library | None, tensors: Sequence[Any], initial: Sequence[Any] | None, cu_seqlens: Any) -> TypeError:
        """The error for the first argument that is no array, or one of another library than the first."""
        names, given = self._arrays(tensors, initial, cu_seqlens)
        for name, x in zip(names, given):
            library, got = library_of(x), "None" if x is None else type(x).__name__
            if library is None:
                return self.error(name, f"expected a NumPy array or a PyTorch tensor, got {got}")
            if library is not arrays:
                return self.error(name, f"expected an array of the same library as {names[0]!r}, {type(tensors[0]).__name__}, got {got}")
        return TypeError(f"{self.signature.name}: expected arrays of one library, got {[type(x).__name__ for x in given]}")

    def check_offsets(self, arrays: Library, x: Any) -> None:
        """Errors for a cu_seqlens of another type or shape."""
        if library_of(x) is not arrays:
            raise self.error("cu_seqlens", f"expected a NumPy array or a PyTorch tensor, got {type(x).__name__}")
        try:
            dtype = arrays.dtype(x)
        except TypeError:
            dtype = str(x.dtype)
        if len(x.shape) != 1 or x.shape[0] < 1 or dtype not in ("i32", "i64"):
            raise ValueError(f"{self.signature.name}: argument 'cu_seqlens': expected int32 or int64 [N + 1], offsets from 0 to the number of "
                             f"tokens, got {dtype} {list(x.shape)}")  # fmt: skip
        self._conversion(arrays, "cu_seqlens", x)

    def read(
        self, arrays: Library, tensors: Sequence[Any], initial: Sequence[Any] | None, cu_seqlens: Any
    ) -> tuple[list[Entry], tuple[tuple[int, Any], ...]]:
        """What kernels are given of all arrays, in the order inputs, initial states, cu_seqlens, and (number, function) of those that are
        converted for them."""
        names, given = self._arrays(tensors, initial, cu_seqlens)
        if any(library_of(x) is not arrays for x in given):
            raise self.strange_array(arrays, tensors, initial, cu_seqlens)
        if cu_seqlens is not None:
            self.check_offsets(arrays, cu_seqlens)
        device, entries, conversions = arrays.device(tensors[0]), [], []
        for number, (name, x) in enumerate(zip(names, given)):
            if arrays.device(x) != device:
                raise _c.RuntimeError(f"{self.signature.name}: argument {name!r}: expected an array on {device} as {names[0]!r}, "
                                      f"got one on {arrays.device(x)}")  # fmt: skip
            convert = self._conversion(arrays, name, x)
            if convert is not None:
                conversions.append((number, convert))
                x = convert(x)
            entries.append((arrays.dtype(x), tuple(x.shape), arrays.strides(x)))
        return entries, tuple(conversions)

    def _conversion(self, arrays: Library, name: str, x: Any) -> Any:
        """What makes an array that kernels can read of x; None where x is one."""
        try:
            dtype = arrays.dtype(x)
        except TypeError:
            raise self.error(name, f"expected an array of float32, float16 or bfloat16, got {x.dtype}") from None
        is_state = name == "initial_state"
        if is_state and dtype not in _FLOATS:
            raise self.error(name, f"expected an array of floating-point numbers, got {x.dtype}")
        try:
            return arrays.conversion(x, to_float32=is_state)
        except TypeError as refused:
            raise self.error(name, str(refused)) from None
