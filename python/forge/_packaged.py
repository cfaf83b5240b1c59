"""Kernels of packages, in the place of what is compiled: libforge_rt through ctypes."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from . import _c

_PROTOTYPES = {
    "forge_rt_error": (c_char_p, []),
    "forge_rt_open": (c_int32, [c_char_p, c_void_p, POINTER(c_void_p)]),
    "forge_rt_close": (None, [c_void_p]),
    "forge_rt_manifest": (c_char_p, [c_void_p]),
    "forge_rt_target": (c_char_p, [c_void_p]),
    "forge_rt_find": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "forge_rt_workspace_bytes": (
        c_int32, [c_void_p, c_void_p, POINTER(_c.Bounds), POINTER(c_size_t), POINTER(c_size_t)],
    ),
    "forge_rt_launch": (c_int32, [c_void_p, c_void_p]),
}  # fmt: skip


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("threads", c_int32)]


@cache
def runtime() -> ctypes.CDLL:
    """libforge_rt, which lies beside libforge."""
    path = Path(_c.library()._name).parent / "libforge_rt.so"
    if not path.exists():
        raise ImportError(f"{path}, which runs packages, is not there")
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _check(status: int) -> None:
    if status:
        raise _c.exception_of(status)(runtime().forge_rt_error().decode())


class Package:
    """The kernels of a package for one device, loaded."""

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.device, self._handle = path, device, c_void_p()
        options = _Options(ctypes.sizeof(_Options), device.encode(), 0)
        _check(runtime().forge_rt_open(str(path).encode(), byref(options), byref(self._handle)))
        self._close = runtime().forge_rt_close
        self.target = runtime().forge_rt_target(self._handle).decode()
        self._manifest = json.loads(runtime().forge_rt_manifest(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_close", None):
            self._close(self._handle)

    def find(self, definition: str, entry: str, dtype: str, sizes: Mapping[str, int]) -> Packaged | None:
        """The kernels of an entry point for an element type and sizes, if the package has some."""
        places = self._manifest
        target = next(i for i, t in enumerate(places["targets"]) if t["name"] == self.target)
        for kernels in places["kernels"]:
            point = places["entries"][kernels["entry"]]
            of = places["definitions"][point["definition"]]["name"]
            named = dict(zip((s["name"] for s in point["symbols"]), kernels["sizes"]))
            if (of, point["name"], kernels["target"], kernels["dtype"], named) == (
                definition, entry, target, dtype, dict(sizes),
            ):  # fmt: skip
                return Packaged(self, definition, entry, kernels, sizes)
        return None


class Packaged:
    """An entry point of a package for an element type and sizes, in the place of a _c.Compiled. Which of its kernels a
    call gets, the package's table says."""

    def __init__(
        self, package: Package, definition: str, entry: str, kernels: dict[str, Any], sizes: Mapping[str, int]
    ) -> None:
        self._package, self._handle = package, c_void_p()  # which keeps what the entry point belongs to
        _check(runtime().forge_rt_find(package._handle, definition.encode(), entry.encode(), byref(self._handle)))
        self._launch, self._check = runtime().forge_rt_launch, _check
        call = kernels["callable"]
        self.tensors, self.scalars = [_place(t, call["tensors"]) for t in call["tensors"]], call["scalars"]
        self.request: dict[str, Any] = {}
        self.info: dict[str, Any] = {
            "name": definition, "device": package.device, "arch": package.target, "dtype": kernels["dtype"],
            "engine": "package", "refused": [], "package": str(package.path), "sizes": dict(sizes),
            "tensors": self.tensors, "scalars": self.scalars,
        }  # fmt: skip
        self._workspaces: dict[tuple[Any, ...], int] = {}

    def explain(self) -> str:
        return f"{self.info['name']}: kernels of {self.info['package']}; `forge explain` prints its tables\n"

    def sources(self) -> dict[str, str]:
        return {}

    def resources(self) -> list[dict[str, Any]]:
        return []

    def check(self) -> dict[str, Any]:
        raise _c.RuntimeError(f"{self.info['name']}: kernels of a package are called, but not checked")

    def workspace_bytes(self, sequences: int, tokens: int, heads: int, packed: bool) -> int:
        key = (sequences, tokens, heads, packed)
        if key not in self._workspaces:
            bounds, size, alignment = _c.Bounds(ctypes.sizeof(_c.Bounds), *key), c_size_t(), c_size_t()
            _check(runtime().forge_rt_workspace_bytes(self._handle, None, byref(bounds), byref(size), byref(alignment)))
            self._workspaces[key] = size.value
        return self._workspaces[key]


def _place(tensor: dict[str, Any], tensors: list[dict[str, Any]]) -> dict[str, Any]:
    """As forge_describe says it: with symbols, states with the axes of sequences and heads."""
    shape = [_text(d) for d in tensor["shape"]]
    if tensor["kind"] in ("initial_state", "final_state"):
        heads = "heads"
        if (of := tensor.get("heads")) is not None:  # of a state that holds the last rows of an input: that input's
            heads = next(
                _text(t["shape"][1])
                for t in tensors
                if t["kind"] == "input" and len(t["axes"]) > 1 and t["axes"][1] == of
            )
        shape = ["N", heads, *shape]
    return {"name": tensor["name"], "kind": tensor["kind"], "dtype": tensor["dtype"], "shape": shape}


def _text(dim: dict[str, Any]) -> str:
    symbol, factor = dim.get("symbol", ""), dim["factor"]
    return str(factor) if not symbol else symbol if factor == 1 else f"{factor}*{symbol}"
