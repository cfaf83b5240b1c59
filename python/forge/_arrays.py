"""NumPy arrays and PyTorch tensors as what a call needs of them: type, shape, strides, address, device, new arrays.

Neither library is imported here before an array of it is seen.
"""

from __future__ import annotations

import sys

from . import _c
from ._types import dtype_name


class NumPy:
    """numpy.ndarray, with bfloat16 of ml_dtypes."""

    def __init__(self):
        import numpy

        self._np = numpy
        self._names = {
            numpy.dtype(n): n2 for n, n2 in (("float32", "f32"), ("float16", "f16"), ("float64", "f64"), ("int32", "i32"), ("int64", "i64"))
        }
        self._dtypes = {name: dtype for dtype, name in self._names.items()}

    def entry(self, x):
        """What identifies the layout of an array: a hashable value."""
        return x.dtype, x.shape, x.strides

    def dtype(self, x) -> str:
        name = self._names.get(x.dtype)
        return name if name is not None else dtype_name(x.dtype)

    def strides(self, x) -> tuple[int, ...]:
        """In elements."""
        size = x.dtype.itemsize
        if any(s % size for s in x.strides):
            raise _c.RuntimeError(f"an array with strides of {x.strides} bytes is not aligned to its elements of {size}")
        return tuple(s // size for s in x.strides)

    def address(self, x) -> int:
        return x.__array_interface__["data"][0]

    def device(self, x) -> str:
        return "cpu"

    def stream(self, device: str) -> int:
        return 0

    def numpy_dtype(self, name: str):
        if name == "bf16" and name not in self._dtypes:
            import ml_dtypes

            self._dtypes[name] = self._np.dtype(ml_dtypes.bfloat16)
        return self._dtypes[name]

    def empty(self, shape, dtype: str, like):
        return self._np.empty(shape, self.numpy_dtype(dtype))

    def workspace(self, size: int, like):
        """(owner, address) of a workspace, aligned to 64 bytes."""
        memory = self._np.empty(size + 63, self._np.uint8)
        return memory, (self.address(memory) + 63) & ~63

    def float32(self, x):
        return x.astype(self._np.float32)

    def wants_gradients(self, xs) -> bool:
        return False


class Torch:
    """torch.Tensor, on the CPU or a GPU."""

    def __init__(self):
        import torch

        self._torch = torch
        self._names = {
            torch.float32: "f32",
            torch.float16: "f16",
            torch.bfloat16: "bf16",
            torch.float64: "f64",
            torch.int32: "i32",
            torch.int64: "i64",
        }
        self._dtypes = {name: dtype for dtype, name in self._names.items()}
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def entry(self, x):
        return x.dtype, x.shape, x.stride(), x.device

    def dtype(self, x) -> str:
        name = self._names.get(x.dtype)
        return name if name is not None else dtype_name(x.dtype)

    def strides(self, x) -> tuple[int, ...]:
        return x.stride()

    def address(self, x) -> int:
        return x.data_ptr()

    def device(self, x) -> str:
        device = x.device
        return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"

    def stream(self, device: str) -> int:
        if device == "cpu":
            return 0
        index = int(device.partition(":")[2])
        if self._raw_stream is not None:
            return self._raw_stream(index)
        return self._torch.cuda.current_stream(index).cuda_stream

    def empty(self, shape, dtype: str, like):
        return self._torch.empty(shape, dtype=self._dtypes[dtype], device=like.device)

    def workspace(self, size: int, like):
        """On a GPU from PyTorch's allocator, whose memory is aligned to 512 bytes."""
        memory = self._torch.empty(size if like.is_cuda else size + 63, dtype=self._torch.uint8, device=like.device)
        address = memory.data_ptr()
        return memory, address if like.is_cuda else (address + 63) & ~63

    def float32(self, x):
        return x.float()

    def wants_gradients(self, xs) -> bool:
        return self._torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in xs)


_known: dict[type, NumPy | Torch] = {}


def library_of(x) -> NumPy | Torch | None:
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
