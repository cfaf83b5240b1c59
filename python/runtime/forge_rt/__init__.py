"""Packages that Forge compiled ahead, called with arrays of NumPy or PyTorch: libforge_rt through ctypes.

    package = forge_rt.open("zoo")                      # or "zoo/libzoo.so"; device="cuda" for a GPU
    decode = package.find("gla", "decode")
    where = dict(initial_s=pool, final_s=pool, initial_slots=slots, final_slots=slots)
    o = decode(q=q, k=k, v=v, g=g, scale=0.125, **where)["o"]

Neither the compiler nor a C++ compiler nor Forge's package `forge` is needed, nor the array libraries to import this.
Arrays may have any strides; nothing is copied or converted. `forge_rt.INCLUDE` has the headers of C.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

__all__ = ["INCLUDE", "Entry", "Error", "Package", "open"]

INCLUDE = Path(__file__).parent / "include"
_DTYPES = {"int32": 1, "int64": 2, "float16": 3, "bfloat16": 4, "float32": 5, "float64": 6}
_NAMES = {"i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


class Error(RuntimeError):
    """What libforge_rt refuses, in its words."""


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("threads", c_int32), ("dump_folder", c_char_p),
                ("nvtx", c_int32)]  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("shape", c_void_p), ("strides", c_void_p), ("rank", c_int32), ("dtype", c_int32)]


class _Args(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("tensors", c_void_p), ("tensor_count", c_size_t), ("scalars", c_void_p),
        ("scalar_count", c_size_t), ("cu_seqlens", c_void_p), ("workspace", c_void_p), ("workspace_bytes", c_size_t),
        ("stream", c_void_p), ("parallel_for", c_void_p), ("parallel_context", c_void_p), ("initial_slots", c_void_p),
        ("final_slots", c_void_p), ("has_initial_state", c_void_p), ("wide_slots", c_int32), ("chunk_slots", c_void_p),
    ]  # fmt: skip


class _Bounds(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("sequences", c_int64), ("tokens", c_int64), ("heads", c_int64), ("packed", c_int32),
    ]  # fmt: skip


def _library() -> ctypes.CDLL:
    path = os.environ.get("FORGE_RT_LIBRARY") or Path(__file__).parent / "lib" / "libforge_rt.so"
    lib = ctypes.CDLL(str(path))
    for name, result, arguments in (
        ("error", c_char_p, []),
        ("manifest", c_char_p, [c_void_p]),
        ("target", c_char_p, [c_void_p]),
        ("open", c_int32, [c_char_p, c_void_p, POINTER(c_void_p)]),
        ("close", None, [c_void_p]),
        ("find", c_int32, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
        ("select", c_int32, [c_void_p, c_void_p, POINTER(c_char_p)]),
        ("workspace_bytes", c_int32, [c_void_p, c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t)]),
        ("launch", c_int32, [c_void_p, c_void_p]),
    ):
        function = getattr(lib, f"forge_rt_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


_lib = _library()


def _check(status: int) -> None:
    if status:
        raise Error(_lib.forge_rt_error().decode())


def open(  # noqa: A001
    path: str | Path, device: str = "cpu", threads: int = 0, dump_folder: str | Path | None = None, nvtx: bool = False
) -> Package:
    """Loads a package: a folder that `forge build` wrote, or a lib<name>.so, for a device. `dump_folder`: where every
    call is written to a file, for `forge replay`. `nvtx`: a range of NVTX around every call."""
    return Package(path, device, threads, dump_folder, nvtx)


class Package:
    """A package whose kernels for one device are loaded."""

    def __init__(
        self, path: str | Path, device: str = "cpu", threads: int = 0, dump_folder: str | Path | None = None,
        nvtx: bool = False,
    ) -> None:  # fmt: skip
        self._handle = c_void_p()
        folder = None if dump_folder is None else str(dump_folder).encode()
        options = _Options(ctypes.sizeof(_Options), device.encode(), threads, folder, nvtx)
        _check(_lib.forge_rt_open(str(path).encode(), byref(options), byref(self._handle)))
        self._close = _lib.forge_rt_close
        self.manifest: dict[str, Any] = json.loads(_lib.forge_rt_manifest(self._handle))  #: what the package says
        self.target: str = _lib.forge_rt_target(self._handle).decode()  #: whose kernels were loaded

    def __del__(self) -> None:
        if getattr(self, "_close", None):
            self._close(self._handle)

    def find(self, definition: str, entry: str) -> Entry:
        """An entry point: forward, decode, …"""
        found = c_void_p()
        _check(_lib.forge_rt_find(self._handle, definition.encode(), entry.encode(), byref(found)))
        return Entry(self, definition, entry, found)


class Entry:
    """An entry point of a package. `inputs`, `outputs`, `states` and `scalars` are names of its arguments."""

    def __init__(self, package: Package, definition: str, entry: str, handle: c_void_p) -> None:
        self._package, self._handle = package, handle  # to which the handle belongs
        entries, definitions = package.manifest["entries"], package.manifest["definitions"]
        kernels = next(
            k["callable"]
            for k in package.manifest["kernels"]
            if (e := entries[k["entry"]])["name"] == entry and definitions[e["definition"]]["name"] == definition
        )
        self.name, self.tensors, self.scalars = f"{definition}.{entry}", kernels["tensors"], list(kernels["scalars"])
        of = {"input": "", "head": "", "output": "", "initial_state": "initial_", "final_state": "final_"}
        self._arguments = [of.get(t["kind"], "before_chunks_") + t["name"] for t in self.tensors]
        named = list(zip(self._arguments, self.tensors))
        self.inputs = [n for n, t in named if t["kind"] in ("input", "head")]
        self.outputs = [n for n, t in named if t["kind"] == "output"]
        self.states = [n for n, t in named if "state" in t["kind"]]

    def __repr__(self) -> str:
        return f"<forge_rt.Entry {self.name}({', '.join([*self.inputs, *self.scalars])})>"

    def __call__(
        self, *, cu_seqlens: Any = None, initial_slots: Any = None, final_slots: Any = None, chunk_slots: Any = None,
        stream: int = 0, **given: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Runs a call, or launches it on a CUDA stream; its outputs by name. Arguments are those of forge_call.h:
        inputs and numbers by name, states initial_<name> and final_<name>, which may be the same array, or absent;
        outputs, if the caller has arrays for them; before_chunks_<name>, where the package was built with
        chunk_states."""
        known = [*self._arguments, *self.scalars]
        if strange := [n for n in given if n not in known]:
            raise TypeError(f"{self.name}: there is no argument {strange[0]!r}; it takes {', '.join(known)}")
        if missing := [n for n in [*self.inputs, *self.scalars] if given.get(n) is None]:
            raise TypeError(f"{self.name}: expected {', '.join(missing)}")
        first = given[self.inputs[0]]
        sizes = self._sizes(given)
        for name, tensor in zip(self._arguments, self.tensors):
            if tensor["kind"] == "output" and given.get(name) is None:
                batch = first.shape[: first.ndim - len(self.tensors[0]["shape"])]
                given[name] = _empty(
                    first, (*batch, *(_size(d, sizes) for d in tensor["shape"])), tensor["dtype"], first
                )
        alive: list[Any] = []
        tensors = (_Tensor * len(self.tensors))(*(_view(given.get(name), alive) for name in self._arguments))
        scalars = (c_double * max(1, len(self.scalars)))(*(given[name] for name in self.scalars))
        args = _Args(ctypes.sizeof(_Args), ctypes.addressof(tensors), len(tensors), ctypes.addressof(scalars))
        args.scalar_count, args.stream = len(self.scalars), stream
        offsets, chunks = _view(cu_seqlens, alive), _view(chunk_slots, alive)
        if cu_seqlens is not None:
            args.cu_seqlens = ctypes.addressof(offsets)
        if chunk_slots is not None:
            args.chunk_slots = ctypes.addressof(chunks)
        args.initial_slots, args.final_slots = (
            _address(x) if x is not None else None for x in (initial_slots, final_slots)
        )
        args.wide_slots = any(_dtype(x) == "int64" for x in (initial_slots, final_slots) if x is not None)
        workspace, args.workspace, args.workspace_bytes = self._workspace(args, first, sizes, cu_seqlens)
        _check(_lib.forge_rt_launch(self._handle, byref(args)))
        return {name: given[name] for name in self.outputs}

    def _sizes(self, given: dict[str, Any]) -> dict[str, int]:
        """The sizes that symbols have in a call."""
        found: dict[str, int] = {}
        for name, tensor in zip(self._arguments, self.tensors):
            if tensor["kind"] in ("input", "head"):
                shape = given[name].shape[len(given[name].shape) - len(tensor["shape"]) :]
                for dim, size in zip(tensor["shape"], shape):
                    found.setdefault(dim.get("symbol", ""), size // max(1, dim["factor"]))
        return found

    def _workspace(self, args: _Args, first: Any, sizes: dict[str, int], cu_seqlens: Any) -> tuple[Any, int, int]:
        """(what keeps it, its address, its bytes)."""
        batch = first.shape[0] if first.ndim > len(self.tensors[0]["shape"]) else 1
        sequences = batch if cu_seqlens is None else max(0, cu_seqlens.shape[0] - 1)
        heads = max((_size(t["shape"][1], sizes) for t in self.tensors if t["kind"] in ("input", "output")), default=1)
        bounds = _Bounds(ctypes.sizeof(_Bounds), sequences, sizes.get("T", 1), heads, cu_seqlens is not None)
        size, alignment = c_size_t(), c_size_t()
        _check(_lib.forge_rt_workspace_bytes(self._handle, byref(args), byref(bounds), byref(size), byref(alignment)))
        memory = _empty(first, (size.value + alignment.value,), "u8", first)
        return memory, -(-_address(memory) // alignment.value) * alignment.value, size.value


def _size(dim: dict[str, Any], sizes: dict[str, int]) -> int:
    return dim["factor"] * sizes[dim["symbol"]] if dim.get("symbol") else dim["factor"]


def _is_torch(x: Any) -> bool:
    return hasattr(x, "data_ptr")


def _dtype(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def _address(x: Any) -> int:
    return x.data_ptr() if _is_torch(x) else x.__array_interface__["data"][0]


def _empty(like: Any, shape: tuple[int, ...], dtype: str, of: Any) -> Any:
    """A new array beside `like`; 16-bit ones have the type of `of`."""
    name = "uint8" if dtype == "u8" else _NAMES[dtype]
    if _is_torch(like):
        import torch

        return like.new_empty(shape, dtype=getattr(torch, name))
    import numpy

    return numpy.empty(shape, of.dtype if name == _dtype(of) else name)


def _view(x: Any, alive: list[Any]) -> _Tensor:
    """What C is given of an array; `alive` keeps its numbers."""
    if x is None:
        return _Tensor()
    if _dtype(x) not in _DTYPES:
        raise TypeError(f"forge_rt: expected one of {', '.join(_DTYPES)}, got {_dtype(x)}")
    strides = x.stride() if _is_torch(x) else [s // x.itemsize for s in x.strides]
    rank = builtins.len(x.shape)
    numbers = (c_int64 * (2 * rank + 1))(*x.shape, *strides)
    alive.append(numbers)
    at = ctypes.addressof(numbers)
    return _Tensor(_address(x), at, at + 8 * rank, rank, _DTYPES[_dtype(x)])
