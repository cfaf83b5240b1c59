"""NumPy arrays and PyTorch tensors as what a call needs of them: type, shape, strides, address, device, new arrays.

Neither library is imported here before an array of it is seen.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from ._types import dtype_name

Array = Any  #: a NumPy array or a PyTorch tensor; neither library need be installed


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def wide(x: Array) -> Array:
    """x in float32, as gates are."""
    if hasattr(x, "float"):
        return x.float()
    return x.astype("float32", copy=False)


def like(x: Array, other: Array) -> Array:
    """x in the element type of another array."""
    if x.dtype == other.dtype:
        return x
    return x.to(other.dtype) if hasattr(x, "float") else x.astype(other.dtype.newbyteorder("="), copy=False)


class NumPy:
    """numpy.ndarray, with bfloat16 of ml_dtypes."""

    def __init__(self) -> None:
        import numpy

        self._np = numpy
        self._names = {
            numpy.dtype(n): n2
            for n, n2 in (
                ("float32", "f32"),
                ("float16", "f16"),
                ("float64", "f64"),
                ("int32", "i32"),
                ("int64", "i64"),
                ("uint8", "u8"),
            )
        }
        self._dtypes = {name: dtype for dtype, name in self._names.items()}

    _READ_AND_WRITTEN = 0x0100 | 0x0400  #: numpy's flags NPY_ARRAY_ALIGNED and NPY_ARRAY_WRITEABLE

    def layouts(self, xs: list[Any]) -> tuple[Any, ...]:
        """What identifies the layouts of arrays, and what kind of array they are: a hashable value. AttributeError for
        things that are no arrays."""
        return tuple([(type(x), x.dtype, x.shape, x.strides, x.flags.num & self._READ_AND_WRITTEN) for x in xs])

    def dtype(self, x: Any) -> str:
        name = self._names.get(x.dtype)
        return name if name is not None else dtype_name(x.dtype)

    def conversion(self, x: Any, to_float32: bool = False, dense: bool = False) -> Any:
        """What makes an array that kernels can read of one with this layout; None where it is one already. TypeError
        where none can be made of it without a guess. `to_float32`: whether other floating-point types become that.
        `dense`: whether its elements are to lie in a row."""
        if isinstance(x, self._np.ma.MaskedArray):
            raise TypeError(
                "expected an array without a mask, got a masked one; x.filled(0) has numbers for what is masked"
            )
        if to_float32 and self.dtype(x) in ("bf16", "f16", "f64"):
            return self.float32
        if not x.dtype.isnative:
            return lambda x: x.astype(x.dtype.newbyteorder("="))
        return (
            None
            if x.flags.aligned and (x.flags.c_contiguous or not dense)
            else self._np.ascontiguousarray
            if dense
            else self._np.copy
        )

    def refusal_in_place(self, x: Any) -> str:
        """Why kernels cannot write an array of float32 where it lies; "" if they can."""
        try:
            if self.conversion(x) is not None:
                return "another byte order" if not x.dtype.isnative else "an array off its alignment"
        except TypeError:
            return "a masked array"
        return "" if x.flags.writeable else "an array that is read-only"

    def strides(self, x: Any) -> tuple[int, ...]:
        """In elements."""
        return tuple(s // x.dtype.itemsize for s in x.strides)

    def address(self, x: Any) -> int:
        return x.__array_interface__["data"][0]

    def device(self, x: Any) -> str:
        return "cpu"

    def current_stream(self, device: str) -> Any:
        """A function that gives the CUstream on which work for a device is to be launched at the moment; 0 on the
        CPU."""
        return lambda: 0

    def numpy_dtype(self, name: str) -> Any:
        if name == "bf16" and name not in self._dtypes:
            try:
                import ml_dtypes
            except ImportError:
                raise ImportError("forge: bfloat16 arrays of NumPy are ml_dtypes': pip install ml_dtypes") from None

            self._dtypes[name] = self._np.dtype(ml_dtypes.bfloat16)
        return self._dtypes[name]

    def maker(self, shape: tuple[Any, ...], dtype: str, like: Any) -> Any:
        """A function that makes dense arrays of this shape and type, without contents, where `like` is; on a GPU, while
        that is the current device."""
        return partial(self._np.empty, shape, self.numpy_dtype(dtype))

    def allocator(self, device: str) -> Any:
        """Where memory for the time of a launch comes cheaper than as an array: what makes so many bytes for a stream,
        and what takes them back once all is launched."""
        return None

    def current_device(self, device: str) -> Any:
        """What gives the number of the current device, if there is such a thing."""
        return None

    def float32(self, x: Any) -> Any:
        return x.astype(self._np.float32)

    def wants_gradients(self, xs: Any) -> bool:
        return False


class Torch:
    """torch.Tensor, on the CPU or a GPU."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._names = {
            torch.float32: "f32",
            torch.float16: "f16",
            torch.bfloat16: "bf16",
            torch.float64: "f64",
            torch.int32: "i32",
            torch.int64: "i64",
            torch.uint8: "u8",
        }
        self._dtypes = {name: dtype for dtype, name in self._names.items()}
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.address = torch.Tensor.data_ptr

    def layouts(self, xs: list[Any]) -> tuple[Any, ...]:
        return tuple([(x.dtype, x.shape, x.is_contiguous() or (x.stride(), x.is_neg()), x.get_device()) for x in xs])

    def dtype(self, x: Any) -> str:
        name = self._names.get(x.dtype)
        return name if name is not None else dtype_name(x.dtype)

    def conversion(self, x: Any, to_float32: bool = False, dense: bool = False) -> Any:
        if x.layout is not self._torch.strided:
            raise TypeError(f"expected a dense tensor, got one of layout {x.layout}; x.to_dense() makes one")
        if to_float32 and self.dtype(x) in ("bf16", "f16", "f64"):
            return self.float32
        if dense and not x.is_contiguous():
            return self._torch.Tensor.contiguous
        return self._torch.resolve_neg if x.is_neg() else None

    def refusal_in_place(self, x: Any) -> str:
        if x.layout is not self._torch.strided:
            return f"a tensor of layout {x.layout}"
        return "a view of negated numbers" if x.is_neg() else ""

    def strides(self, x: Any) -> tuple[int, ...]:
        return x.stride()

    def device(self, x: Any) -> str:
        device = x.device
        return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"

    def current_stream(self, device: str) -> Any:
        if device == "cpu":
            return lambda: 0
        index = int(device.partition(":")[2] or 0)
        if self._raw_stream is not None:
            return partial(self._raw_stream, index)
        return lambda: self._torch.cuda.current_stream(index).cuda_stream

    def maker(self, shape: tuple[Any, ...], dtype: str, like: Any) -> Any:
        empty = self._from_c("_dynamo.guards._empty_strided_cuda") if like.is_cuda else None
        if empty is not None:  # as compiled PyTorch makes its tensors, in half the time
            return partial(empty, shape, dense_strides(shape), self._dtypes[dtype])
        return partial(
            self._torch.empty_like, self._torch.empty((), dtype=self._dtypes[dtype], device=like.device).expand(shape)
        )

    def allocator(self, device: str) -> Any:
        made = (
            self._from_c("_cuda_cudaCachingAllocator_raw_alloc"),
            self._from_c("_cuda_cudaCachingAllocator_raw_delete"),
        )
        return made if device != "cpu" and None not in made else None

    def current_device(self, device: str) -> Any:
        return None if device == "cpu" else self._from_c("_cuda_getDevice") or self._torch.cuda.current_device

    def _from_c(self, name: str) -> Any:
        """A function of PyTorch's C part that this version may have."""
        found = self._torch._C
        for part in name.split("."):
            found = getattr(found, part, None)
        return found

    def float32(self, x: Any) -> Any:
        return x.float()

    def wants_gradients(self, xs: Any) -> bool:
        return self._torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in xs)


Library = NumPy | Torch
_known: dict[type, Library] = {}


def library_of(x: object) -> Library | None:
    """What handles arrays of x's kind; None for things that are no arrays."""
    found = _known.get(type(x))
    if found is None:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch is not None and isinstance(x, torch.Tensor):
            found = next((a for a in _known.values() if isinstance(a, Torch)), None) or Torch()
        elif numpy is not None and isinstance(x, numpy.ndarray):
            found = next((a for a in _known.values() if isinstance(a, NumPy)), None) or NumPy()
        else:
            return None
        _known[type(x)] = found
    return found
