"""What `input_meta` is made of: symbolic tensors, constant expressions, and the names of element types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

_NAMES = {
    "bool": "bool", "int32": "i32", "int64": "i64", "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32":
    "f32", "float": "f32", "float64": "f64", "double": "f64", "i32": "i32", "i64": "i64", "f16": "f16", "bf16": "bf16",
    "f32": "f32", "f64": "f64",
}  # fmt: skip
_LONG = {
    "bool": "bool",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}

HALF = ("bf16", "f16")

#: Forge's element types, PyTorch's, NumPy's and ml_dtypes', and their names.
DTypeLike = Any


class DType:
    """An element type. Equal to PyTorch's, NumPy's and its own names: `x.dtype == torch.bfloat16` holds while
    tracing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"forge.{_LONG[self.name]}"

    def __eq__(self, other: Any) -> bool:
        try:
            return self.name == dtype_name(other)
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_floating_point(self) -> bool:
        return self.name in ("f16", "bf16", "f32", "f64")


float16, bfloat16, float32, float64, int32, int64 = (DType(n) for n in ("f16", "bf16", "f32", "f64", "i32", "i64"))


def dtype_name(dtype: Any) -> str:
    """The text form's name of an element type of Forge, PyTorch, NumPy or ml_dtypes, or of a string: "bf16". TypeError
    otherwise."""
    if isinstance(dtype, DType):
        return dtype.name
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = _NAMES.get(str(text).removeprefix("torch.").removeprefix("forge."))
    if name is None:
        raise TypeError(f"dtype: expected float32, float16, bfloat16 or the like, got {dtype!r}")
    return name


#: What the text form takes as a name, and as a dimension: several of it.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIM = re.compile(rf"(\d+\s*\*\s*)?{_NAME.pattern}")


def is_name(text: object) -> bool:
    """Whether this can name an input, a size or a definition."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


class ConstExpr:
    """A named size that is known when a variant is compiled: ConstExpr("H", 32), or one of several: ConstExpr("K", [64,
    128]).

    With a single value it can be used as that number: `scale = K ** -0.5`.
    """

    __slots__ = ("name", "values")

    def __init__(self, name: str, value: int | Sequence[int]) -> None:
        if not is_name(name):
            raise TypeError(f"ConstExpr: expected a name of letters, digits and _, no digit first, got {name!r}")
        if not isinstance(value, (int, Sequence)):
            raise TypeError(f"ConstExpr {name!r}: expected a size, or several, got {value!r}")
        values = (value,) if isinstance(value, int) else tuple(value)
        if not values or any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in values):
            raise ValueError(f"ConstExpr {name!r}: expected a size of at least 1, or several, got {value!r}")
        self.name, self.values = name, values

    def __repr__(self) -> str:
        return f"ConstExpr({self.name!r}, {self.values[0] if len(self.values) == 1 else list(self.values)})"

    @property
    def value(self) -> int:
        if len(self.values) != 1:
            raise ValueError(f"{self!r} has several values")
        return self.values[0]

    def __index__(self) -> Any:
        return self.value

    __int__ = __index__

    def __float__(self) -> Any:
        return float(self.value)

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, ConstExpr):
            return (self.name, self.values) == (other.name, other.values)
        return len(self.values) == 1 and self.value == other

    def __hash__(self) -> int:
        return hash((self.name, self.values))

    def __pow__(self, n: Any) -> Any:
        return self.value**n

    def __mul__(self, n: Any) -> Any:
        return self.value * n

    __rmul__ = __mul__

    def __truediv__(self, n: Any) -> Any:
        return self.value / n

    def __rtruediv__(self, n: Any) -> Any:
        return n / self.value

    def __floordiv__(self, n: Any) -> Any:
        return self.value // n

    def __add__(self, n: Any) -> Any:
        return self.value + n

    __radd__ = __add__

    def __sub__(self, n: Any) -> Any:
        return self.value - n


class SymbTensor:
    """The type of an input: dimensions by name ("T": tokens; "NS", "NC": sequences and chunks of states), number or
    ConstExpr.

    Token inputs are [T, heads, …] ("2*T": two rows per token), inputs per head [heads, …], states [NS, heads, …]. `pad`
    is what rows past the end of a sequence read as. `range` is what `check` draws random numbers from, (0, 1) or
    (-math.inf, 0): nothing holds calls to it.
    """

    __slots__ = ("dims", "dtype", "pad", "range")

    def __init__(
        self,
        shape: Sequence[str | int | ConstExpr] = (),
        dtype: DTypeLike = "float32",
        pad: float = 0.0,
        range: Sequence[float] | None = None,
    ) -> None:
        if isinstance(shape, str) or not isinstance(shape, Sequence):
            raise TypeError(f"SymbTensor: expected a list of dimensions, such as ['T', 'H', 'K'], got {shape!r}")
        for d in shape:
            if not isinstance(d, (str, int, ConstExpr)) or isinstance(d, bool):
                raise TypeError(f"SymbTensor: expected names, sizes or ConstExpr as dimensions, got {d!r}")
            if (isinstance(d, int) and d < 1) or (
                isinstance(d, str) and not _DIM.fullmatch(d) and not (d.isdigit() and int(d) > 0)
            ):
                raise ValueError(f"SymbTensor: expected dimensions such as 'K', '2*T' or 64, got {d!r}")
        if not isinstance(pad, (int, float)):
            raise TypeError(f"SymbTensor: argument 'pad': expected a number, got {pad!r}")
        self.dims, self.dtype, self.pad = tuple(shape), DType(dtype_name(dtype)), float(pad)
        self.range = None if range is None else _pair(range)

    def __repr__(self) -> str:
        return f"SymbTensor({list(self.dims)}, dtype={self.dtype!r})"


def _pair(range_: Sequence[float]) -> tuple[float, float]:
    """The ends of a range; ValueError for what is none."""
    try:
        low, high = (float(x) for x in range_)
        if low <= high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise ValueError(f"SymbTensor: argument 'range': expected two numbers, the lower one first, got {range_!r}")


class KnownSize(int):
    """The size of an axis that a ConstExpr fixed: a number that remembers its name."""

    symbol: str

    def __new__(cls, value: int, symbol: str) -> Any:
        size = super().__new__(cls, value)
        size.symbol = symbol
        return size


class SymbolicSize:
    """The size of an axis that is not known while tracing, such as the chunk's C tokens, or 2*D: its half is D."""

    __slots__ = ("symbol",)

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def __repr__(self) -> str:
        return self.symbol

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, SymbolicSize) and self.symbol == other.symbol

    def __hash__(self) -> int:
        return hash(self.symbol)

    def multiple_of(self, base: str) -> int | None:
        """How many times `base` this is; None if it has another symbol."""
        factor, symbol = factor_and_symbol(self.symbol)
        return factor if symbol == base else None

    def _times(self, factor: int, divisor: int = 1) -> Any:
        own, symbol = factor_and_symbol(self.symbol)
        if own * factor % divisor or own * factor // divisor < 1:
            self._unknown()
        return SymbolicSize(symbol if own * factor == divisor else f"{own * factor // divisor}*{symbol}")

    def __mul__(self, n: Any) -> Any:
        return self._times(n) if isinstance(n, int) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, n: Any) -> Any:
        return self._times(1, n) if isinstance(n, int) and n > 0 else NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1)

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, -1)

    def _sum(self, other: Any, sign: int) -> Any:
        own, symbol = factor_and_symbol(self.symbol)
        if not isinstance(other, SymbolicSize):
            return self._unknown() if isinstance(other, (int, float)) else NotImplemented
        multiple = other.multiple_of(symbol)
        if multiple is None or own + sign * multiple < 1:
            self._unknown()
        return SymbolicSize(symbol)._times(own + sign * multiple)

    def _unknown(self, *_: Any) -> NoReturn:
        raise TypeError(
            f"the size {self.symbol} is not known while tracing; compute with tensors instead, or give it as a "
            f"ConstExpr"
        )

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
