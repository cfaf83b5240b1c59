"""Fast launches of compiled variants through the C ABI.

Nothing here knows NumPy or PyTorch: tensors are (data type, shape, strides, address). A *signature*, the tuple of a
call's types, shapes and strides, is turned into C structs once, by a Launcher; launches only write addresses into them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_int64
from typing import Any

from ._c import DTYPES, Args, Tensor, library


class Layout:
    """The C structs of one signature, with places for addresses. Used by one launch at a time (see Launcher).

    `signature` has (dtype, shape, strides) or None for each of a variant's tensors, `offsets` the same of cu_seqlens,
    `chunk_slots` of the slots of states before chunks.
    `wide_slots`: whether slots, where a launch has them, are int64.
    """

    def __init__(
        self,
        signature: tuple[Any, ...],
        offsets: tuple[Any, ...] | None,
        scalar_count: int,
        workspace_bytes: int = 0,
        wide_slots: bool = False,
        chunk_slots: tuple[Any, ...] | None = None,
    ) -> None:
        count = len(signature)
        entries = [*signature, offsets, chunk_slots]
        self._axes = (c_int64 * max(1, sum(2 * len(e[1]) for e in entries if e)))()
        self._tensors = (Tensor * len(entries))()
        axes, at = ctypes.addressof(self._axes), 0
        for tensor, entry in zip(self._tensors, entries):
            if entry is None:
                continue
            dtype, shape, strides = entry
            rank = len(shape)
            self._axes[at : at + 2 * rank] = [*shape, *strides]
            tensor.shape, tensor.strides = axes + 8 * at, axes + 8 * (at + rank)
            tensor.rank, tensor.dtype = rank, DTYPES[dtype]
            at += 2 * rank
        self._scalars = (c_double * max(1, scalar_count))()
        self.args = Args(
            ctypes.sizeof(Args), ctypes.addressof(self._tensors), count, ctypes.addressof(self._scalars), scalar_count
        )
        self.args.workspace_bytes, self.args.wide_slots = workspace_bytes, wide_slots
        if offsets is not None:
            self.args.cu_seqlens = ctypes.addressof(self._tensors) + count * ctypes.sizeof(Tensor)
        if chunk_slots is not None:
            self.args.chunk_slots = ctypes.addressof(self._tensors) + (count + 1) * ctypes.sizeof(Tensor)
        self.address = ctypes.addressof(self.args)
        # Writing machine words is several times faster than assigning fields.
        words = ctypes.sizeof(Tensor) // 8
        self.addresses = _words(self._tensors)[::words]
        self.scalars = memoryview(self._scalars).cast("B").cast("d")
        self.call = _words(self.args)


def _words(struct: Any) -> Any:
    return memoryview(struct).cast("B").cast("N")  # type: ignore[call-overload]


#: Words of Args that change from call to call.
_WORKSPACE, _STREAM = Args.workspace.offset // 8, Args.stream.offset // 8
_INITIAL_SLOTS, _FINAL_SLOTS = Args.initial_slots.offset // 8, Args.final_slots.offset // 8


class Launcher:
    """Launches calls of one signature: C structs that are made once, into which a launch only writes addresses.
    `compiled`: a Compiled, or what stands for one (_packaged)."""

    def __init__(
        self, compiled: Any, signature: tuple[Any, ...], offsets: tuple[Any, ...] | None = None, workspace_bytes:
        int = 0, wide_slots: bool = False, chunk_slots: tuple[Any, ...] | None = None,
    ) -> None:  # fmt: skip
        self._made_from = signature, offsets, len(compiled.scalars), workspace_bytes, wide_slots, chunk_slots
        entries = [*signature, offsets, chunk_slots]
        self._places = [i for i, entry in enumerate(entries) if entry is not None]
        self._compiled, self._launch, self._handle = compiled, compiled._launch, compiled._handle
        self._check = compiled._check
        self._free: list[Layout] = []

    def __call__(
        self, addresses: Any, scalars: Sequence[float] = (), workspace: int = 0, stream: int = 0, slots: int = 0,
        border: tuple[Any, int, int] | None = None,
    ) -> None:  # fmt: skip
        """Runs one call: the addresses of the tensors that the signature has, in its order (cu_seqlens and the slots
        of chunks last), the scalars, the workspace's address, a CUstream, the address of the slots that states are
        read from and written to (0: there are none). `border`: a group's handle and whether sequences cross the part's
        borders, of a call of several ranks. The caller keeps everything alive."""
        try:
            layout = self._free.pop()  # taking and giving back are atomic: no two threads share a layout
        except IndexError:
            layout = Layout(*self._made_from)
        places = layout.addresses
        for place, address in zip(self._places, addresses):
            places[place] = address
        if scalars:
            places = layout.scalars
            for place, value in enumerate(scalars):
                places[place] = value
        call = layout.call
        call[_WORKSPACE] = workspace
        call[_STREAM] = stream
        if slots:
            call[_INITIAL_SLOTS] = call[_FINAL_SLOTS] = slots
        if border is None:
            status = self._launch(self._handle, layout.address)
        else:
            status = library().forge_launch_ranks(self._handle, layout.address, *border)
        self._free.append(layout)
        if status:
            try:
                self._check(status)
            except Exception as error:
                error.at_launch = True  # type: ignore[attr-defined]  # not a refusal of the arguments: see forge.fla
                raise
