"""Sequence parallelism: one sequence, or packed ones, over several ranks, each with a contiguous part of the tokens.

    group = forge.distributed.group(process_group)   # of torch.distributed; or .init(mpi=True)
    attn = forge.LinearAttention(…, sp_group=group)
    o, state = attn(q, k, v, g, output_final_state=True)          # [B, T / ranks, H, …]: this rank's tokens

    part = forge.distributed.partition(cu_seqlens, group)         # packed sequences, offsets of all ranks' tokens
    o, _ = attn(q[part.tokens], …, partition=part)                # or forge.ops.chunk_gla(…, cp_context=part)

All that ranks exchange is the state at their borders. Everything here is collective: every rank makes the same calls in
the same order, backward passes among them. On CPUs, and on GPUs of one machine that write into each other's memory;
on a GPU calls are made on the current stream, and check() says what has gone wrong on it.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import Any

from . import _c
from ._c import GroupAborted as GroupAborted
from ._c import GroupError as GroupError
from ._c import PeerTimeout as PeerTimeout
from ._c import PlanMismatch as PlanMismatch

__all__ = [
    "Group", "GroupAborted", "GroupError", "Partition", "PeerTimeout", "PlanMismatch", "close", "group", "init",
    "partition",
]  # fmt: skip


class Group:
    """Ranks that compute sequences together: made by `group` or `init`."""

    rank: int
    size: int

    def __init__(self, handle: Any, keep: Any = None) -> None:
        lib = _c.library()
        self._handle, self._keep, self._destroy = handle, keep, lib.forge_group_destroy
        self.rank, self.size = lib.forge_group_rank(handle), lib.forge_group_size(handle)

    def close(self) -> None:
        """Frees what the ranks share. On GPUs every rank does so when its kernels have ended and before the process
        group and the interpreter go: no captured graph of a call is replayed afterwards, and no call made."""
        if getattr(self, "_handle", None):
            self._destroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.close()

    def __deepcopy__(self, memo: Any) -> Group:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a group of ranks is of its process: it cannot be pickled")

    def __repr__(self) -> str:
        return f"<forge.distributed.Group: {self.describe()}>"

    def describe(self) -> str:
        """In words: how ranks exchange, and by which scheme the latest time."""
        return _c.library().forge_group_describe(self._handle).decode() if self._handle else "closed"

    def check(self) -> None:
        """Raises what made the group useless, if anything did."""
        _c.check(_c.library().forge_group_check(self._handle))

    def abort(self) -> None:
        """All ranks that wait, or will wait, raise GroupAborted. From any thread."""
        _c.check(_c.library().forge_group_abort(self._handle))


def _created(function: Any, *arguments: Any, keep: Any = None, **options: Any) -> Group:
    handle = c_void_p()
    _c.check(function(*arguments, *_c._options({n: x for n, x in options.items() if x is not None}), byref(handle)))
    return Group(handle, keep)


def init(
    mpi: bool = True, *, timeout: float | None = None, scheme: str | None = None, shared_memory: bool | None = None
) -> Group:
    """The group of all ranks that mpirun or srun started, by Open MPI's library. Collective; options: see `group`."""
    if not mpi:
        raise ValueError("forge.distributed.init: expected mpi=True; of a torch process group forge.distributed.group")
    return _created(_c.library().forge_group_create_mpi, timeout_ms=_milliseconds(timeout), scheme=scheme,
                    shared_memory=shared_memory)  # fmt: skip


_groups: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()


def close() -> None:
    """Group.close of all groups that `group` made: before torch.distributed.destroy_process_group."""
    for made in list(_groups.values()):
        made.close()
    _groups.clear()


def group(
    process_group: Any = None, *, timeout: float | None = None, scheme: str | None = None,
    shared_memory: bool | None = None,
) -> Group:  # fmt: skip
    """The group of a torch process group, over gloo or NCCL (None: the default one). Collective the first time, and
    again if the group has failed since, or with other options.

    `timeout`: seconds after which a rank that waits for another gives up (30; 0: never). `scheme`: how states go from
    rank to rank: auto, direct, ring, scatter-scan-gather, all-gather, serial. `shared_memory`: False exchanges by the
    process group alone, as ranks of several machines do."""
    import torch.distributed as dist

    pg = process_group if process_group is not None else dist.group.WORLD
    if pg is None:
        raise _c.RuntimeError("forge.distributed.group: expected torch.distributed.init_process_group before it")
    options = {"timeout_ms": _milliseconds(timeout), "scheme": scheme, "shared_memory": shared_memory}
    known = _groups.get(pg)
    if known is not None and all(x is None for x in options.values()):
        try:
            known.check()
        except GroupError:
            pass
        else:
            return known
    backends = str(dist.get_backend_config(pg))  # a group over NCCL alone gathers from GPUs
    device = "cpu" if "gloo" in backends or "mpi" in backends else "cuda"
    size, rank = dist.get_world_size(pg), dist.get_rank(pg)

    def gather(_: Any, given: int, out: int, count: int) -> int:
        import torch

        try:
            mine = torch.frombuffer(bytearray(ctypes.string_at(given, count)), dtype=torch.uint8).to(device)
            parts = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(parts, mine, group=of())
            together = torch.cat(parts).cpu()  # kept until it is copied
            ctypes.memmove(out, together.data_ptr(), size * count)
        except Exception:
            import traceback

            traceback.print_exc()  # what is raised here goes through C
            return 1
        return 0

    of = weakref.ref(pg)  # as the key does not: else neither would ever go
    callback = _c.AllGather(gather)
    made = _created(_c.library().forge_group_create, rank, size, callback, None, keep=callback, **options)
    _groups[pg] = made
    return made


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def as_group(given: Any) -> Group:
    """A group, or that of a torch process group."""
    return given if isinstance(given, Group) else group(given)


class Partition:
    """A rank's part of packed sequences."""

    group: Group
    begin: int
    end: int
    sequences: list[int]  #: which ones of all these are
    has_prev: bool  #: the first sequence has begun on a rank before
    has_next: bool  #: the last sequence goes on, on a rank after
    first_rank: int  #: where the first sequence begins
    last_rank: int  #: where the last sequence ends

    def __init__(self, group: Group, parts: dict[str, Any], cu_seqlens: Any) -> None:
        self.group, self.cu_seqlens = group, cu_seqlens  #: offsets of the rank's sequences, int64
        self.begin, self.end, self.sequences = parts["begin"], parts["end"], parts["sequences"]
        self.has_prev, self.has_next = parts["has_prev"], parts["has_next"]
        self.first_rank, self.last_rank = parts["first_rank"], parts["last_rank"]

    @property
    def tokens(self) -> slice:
        """The rank's tokens among all."""
        return slice(self.begin, self.end)

    def __repr__(self) -> str:
        return f"<forge.distributed.Partition: tokens {self.begin} to {self.end}, sequences {self.sequences}>"


def partition(cu_seqlens: Any, group: Any = None, shard_offsets: Sequence[int] | None = None) -> Partition:
    """The part of this rank: equal ones, or the tokens from shard_offsets[rank] to shard_offsets[rank + 1]. Parts may
    be empty. `cu_seqlens`: offsets of all sequences, an array or a list. No rank asks another."""
    of = as_group(group)
    offsets = [int(n) for n in (cu_seqlens.tolist() if hasattr(cu_seqlens, "tolist") else cu_seqlens)]
    shards = None if shard_offsets is None else [int(n) for n in shard_offsets]
    if shards is not None and len(shards) != of.size + 1:
        raise ValueError(f"shard_offsets: expected {of.size + 1}, one more than ranks, got {len(shards)}")
    text = c_void_p()
    array = ctypes.c_int64 * len(offsets)
    _c.check(_c.library().forge_partition(array(*offsets), len(offsets), of.rank, of.size,
                                          None if shards is None else (ctypes.c_int64 * len(shards))(*shards),
                                          byref(text)))  # fmt: skip
    parts = json.loads(_c._taken(text))
    return Partition(of, parts, _like(parts["cu_seqlens"], cu_seqlens))


def _like(numbers: list[int], given: Any) -> Any:
    """An int64 array of PyTorch if that was given, else of NumPy."""
    if hasattr(given, "new_tensor"):
        import torch

        return torch.tensor(numbers, dtype=torch.int64, device=given.device)
    import numpy

    return numpy.asarray(numbers, numpy.int64)


class Border:
    """What a call needs of its ranks: the group, and whether sequences cross the part's borders."""

    def __init__(self, group: Group, has_prev: bool, has_next: bool) -> None:
        self.group, self.of_launch = group, (group._handle, int(has_prev), int(has_next))


def border_of(name: str, sp_group: Any, part: Any, cu_seqlens: Any) -> tuple[Border | None, Any]:
    """The border of a call, and its cu_seqlens, from `sp_group` and `partition`; None without ranks."""
    if part is not None:
        return border_of_context(name, part)
    if sp_group is None:
        return None, cu_seqlens
    if cu_seqlens is not None:
        raise _c.RuntimeError(
            f"{name}: argument 'cu_seqlens': expected partition=forge.distributed.partition(cu_seqlens, group) over "
            "several ranks, got cu_seqlens"
        )
    of = as_group(sp_group)
    return Border(of, of.rank > 0, of.rank + 1 < of.size), None


def border_of_context(name: str, context: Any) -> tuple[Border, Any]:
    """Of a Partition, or of flash-linear-attention's FLACPContext."""
    if isinstance(context, Partition):
        return Border(context.group, context.has_prev, context.has_next), context.cu_seqlens
    if getattr(context, "layout", "contiguous") != "contiguous":
        raise NotImplementedError(f"{name}: cp_context: expected the contiguous layout, got {context.layout!r}")
    if getattr(context, "cu_seqlens", None) is None or getattr(context, "is_first_rank", None) is None:
        raise TypeError(
            f"{name}: cp_context: expected forge.distributed.partition(…) or FLA's build_cp_context(…), got {context!r}"
        )
    return Border(as_group(context.group), not context.is_first_rank, not context.is_last_rank), context.cu_seqlens
