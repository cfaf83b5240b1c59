"""What `input_meta` is made of: symbolic tensors, constant expressions, and the names of element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Union

_NAMES = {
    "bool": "bool", "int32": "i32", "int64": "i64", "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32",
    "float64": "f64", "double": "f64",
    "i32": "i32", "i64": "i64", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
}  # fmt: skip
_LONG = {"bool": "bool", "i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}

HALF = ("bf16", "f16")

#: Forge's element types, PyTorch's, NumPy's and ml_dtypes', and their names.
DTypeLike = Any


class DType:
    """An element type. Equal to PyTorch's, NumPy's and its own names: `x.dtype == torch.bfloat16` holds while tracing."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self):
        return f"forge.{_LONG[self.name]}"

    def __eq__(self, other):
        try:
            return self.name == dtype_name(other)
        except TypeError:
            return NotImplemented

    def __hash__(self):
        return hash(self.name)

    @property
    def is_floating_point(self) -> bool:
        return self.name in ("f16", "bf16", "f32", "f64")


float16, bfloat16, float32, float64, int32, int64 = (DType(n) for n in ("f16", "bf16", "f32", "f64", "i32", "i64"))


def dtype_name(dtype) -> str:
    """The text form's name of an element type of Forge, PyTorch, NumPy or ml_dtypes, or of a string: "bf16". TypeError otherwise."""
    if isinstance(dtype, DType):
        return dtype.name
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = _NAMES.get(str(text).removeprefix("torch.").removeprefix("forge."))
    if name is None:
        raise TypeError(f"dtype: expected float32, float16, bfloat16 or the like, got {dtype!r}")
    return name


class ConstExpr:
    """A named size that is known when a variant is compiled: ConstExpr("H", 32), or one of several: ConstExpr("K", [64, 128]).

    With a single value it can be used as that number: `scale = K ** -0.5`.
    """

    __slots__ = ("name", "values")

    def __init__(self, name: str, value: int | Sequence[int]):
        if not isinstance(name, str) or not name.isidentifier():
            raise TypeError(f"ConstExpr: expected a name, got {name!r}")
        values = (value,) if isinstance(value, int) else tuple(value)
        if not values or any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in values):
            raise ValueError(f"ConstExpr {name!r}: expected a size of at least 1, or several, got {value!r}")
        self.name, self.values = name, values

    def __repr__(self):
        return f"ConstExpr({self.name!r}, {self.values[0] if len(self.values) == 1 else list(self.values)})"

    @property
    def value(self) -> int:
        if len(self.values) != 1:
            raise ValueError(f"{self!r} has several values")
        return self.values[0]

    def __index__(self):
        return self.value

    __int__ = __index__

    def __float__(self):
        return float(self.value)

    def __eq__(self, other):
        if isinstance(other, ConstExpr):
            return (self.name, self.values) == (other.name, other.values)
        return len(self.values) == 1 and self.value == other

    def __hash__(self):
        return hash((self.name, self.values))

    def __pow__(self, n):
        return self.value**n

    def __mul__(self, n):
        return self.value * n

    __rmul__ = __mul__

    def __truediv__(self, n):
        return self.value / n

    def __rtruediv__(self, n):
        return n / self.value

    def __floordiv__(self, n):
        return self.value // n

    def __add__(self, n):
        return self.value + n

    __radd__ = __add__

    def __sub__(self, n):
        return self.value - n


class SymbTensor:
    """The type of an input: dimensions by name ("T": tokens; "NS", "NC": sequences and chunks of states), number or ConstExpr.

    Token inputs are [T, heads, …] ("2*T": two rows per token), inputs per head [heads, …], states [NS, heads, …]. `pad` is what
    rows past the end of a sequence read as. `range` is what `check` draws random numbers from, (0, 1) or (-math.inf, 0): nothing
    holds calls to it.
    """

    __slots__ = ("dims", "dtype", "pad", "range")

    def __init__(
        self, shape: Sequence[str | int | ConstExpr] = (), dtype="float32", pad: float = 0.0, range: Sequence[float] | None = None
    ):
        self.dims, self.dtype, self.pad = tuple(shape), DType(dtype_name(dtype)), float(pad)
        self.range = None if range is None else tuple(float(x) for x in range)
        if self.range is not None and (len(self.range) != 2 or not self.range[0] <= self.range[1]):
            raise ValueError(f"SymbTensor: argument 'range': expected two numbers, the lower one first, got {range!r}")
        for d in self.dims:
            if not isinstance(d, (str, int, ConstExpr)) or isinstance(d, bool):
                raise TypeError(f"SymbTensor: expected names, sizes or ConstExpr as dimensions, got {d!r}")

    def __repr__(self):
        return f"SymbTensor({list(self.dims)}, dtype={self.dtype!r})"


class KnownSize(int):
    """The size of an axis that a ConstExpr fixed: a number that remembers its name."""

    symbol: str

    def __new__(cls, value: int, symbol: str):
        size = super().__new__(cls, value)
        size.symbol = symbol
        return size


class SymbolicSize:
    """The size of an axis that is not known while tracing, such as the chunk's C tokens, or 2*D: its half is D."""

    __slots__ = ("symbol",)

    def __init__(self, symbol: str):
        self.symbol = symbol

    def __repr__(self):
        return self.symbol

    def __eq__(self, other):
        return isinstance(other, SymbolicSize) and self.symbol == other.symbol

    def __hash__(self):
        return hash(self.symbol)

    def multiple_of(self, base: str) -> int | None:
        """How many times `base` this is; None if it has another symbol."""
        factor, symbol = factor_and_symbol(self.symbol)
        return factor if symbol == base else None

    def _times(self, factor: int, divisor: int = 1):
        own, symbol = factor_and_symbol(self.symbol)
        if own * factor % divisor or own * factor // divisor < 1:
            self._unknown()
        return SymbolicSize(symbol if own * factor == divisor else f"{own * factor // divisor}*{symbol}")

    def __mul__(self, n):
        return self._times(n) if isinstance(n, int) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, n):
        return self._times(1, n) if isinstance(n, int) and n > 0 else NotImplemented

    def __add__(self, other):
        return self._sum(other, 1)

    def __sub__(self, other):
        return self._sum(other, -1)

    def _sum(self, other, sign: int):
        own, symbol = factor_and_symbol(self.symbol)
        if not isinstance(other, SymbolicSize):
            return self._unknown() if isinstance(other, (int, float)) else NotImplemented
        if other.multiple_of(symbol) is None or own + sign * other.multiple_of(symbol) < 1:
            self._unknown()
        return SymbolicSize(symbol)._times(own + sign * other.multiple_of(symbol))

    def _unknown(self, *_):
        raise TypeError(f"the size {self.symbol} is not known while tracing; compute with tensors instead, or give it as a ConstExpr")

    __int__ = __float__ = __index__ = __pow__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = _unknown


def factor_and_symbol(dim: str) -> tuple[int, str]:
    """Of a dimension in the text form: "2*D" is (2, "D"), "60" is (60, "")."""
    if dim.isdigit():
        return int(dim), ""
    factor, _, symbol = dim.rpartition("*")
    return int(factor or 1), symbol


def dims_of(type_: str) -> list[str]:
    """The dimensions in a type of the text form: those of "f32[C, 2*D]" are "C" and "2*D"."""
    inside = type_[type_.index("[") + 1 : -1]
    return [d.strip() for d in inside.split(",")] if inside else []
