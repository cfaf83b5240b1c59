"""libforge.so through ctypes: the C ABI of include/forge_c.h, and its errors as exceptions. Launches are in _launch."""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from ._suggest import suggestion

ABI_MAJOR, ABI_MINOR = 1, 5

#: Names of element types in the text form, and their numbers in the C ABI.
DTYPES = {"i32": 1, "i64": 2, "f16": 3, "bf16": 4, "f32": 5, "f64": 6}


class Error(Exception):
    """What Forge raises; the subclasses say whose mistake it is."""


class CompileError(Error):
    """A definition is wrong. The message has, for each mistake, where (`mine.py:12:3`), what was expected and what
    came."""


class RuntimeError(Error, builtins.RuntimeError):  # noqa: A001
    """The arguments of a call, or the machine, are wrong; the message names the argument."""


class InternalError(Error):
    """A bug in Forge."""


class GroupError(RuntimeError):
    """A group of ranks failed, and is of no more use: make another one."""


class PeerTimeout(GroupError):
    """A rank died, or did not come within the timeout."""


class PlanMismatch(GroupError):
    """Ranks made different calls."""


class GroupAborted(GroupError):
    """A rank gave up: its call failed, or it called abort()."""


class PerformanceWarning(UserWarning):
    """A program has slower kernels than its GPU could run, and would have them in another form: the message says
    which."""


for _public in (
    Error, CompileError, RuntimeError, InternalError, GroupError, PeerTimeout, PlanMismatch, GroupAborted,
    PerformanceWarning,
):  # fmt: skip
    _public.__module__ = "forge"  # where users find them: tracebacks begin with it


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("shape", c_void_p), ("strides", c_void_p), ("rank", c_int32), ("dtype", c_int32)]


class Args(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tensors", c_void_p),
        ("tensor_count", c_size_t),
        ("scalars", c_void_p),
        ("scalar_count", c_size_t),
        ("cu_seqlens", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("stream", c_void_p),
        ("parallel_for", c_void_p),
        ("parallel_context", c_void_p),
        ("initial_slots", c_void_p),
        ("final_slots", c_void_p),
        ("has_initial_state", c_void_p),
        ("wide_slots", c_int32),
        ("chunk_slots", c_void_p),
    ]


class Bounds(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("sequences", c_int64),
        ("tokens", c_int64),
        ("heads", c_int64),
        ("packed", c_int32),
    ]


class Option(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


#: An all-gather of bytes: (context, in, out, bytes) -> 0, or what failed.
AllGather = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_size_t)
Progress = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, c_char_p)


_PROTOTYPES = {
    "forge_abi_version": (c_uint32, []),
    "forge_build": (c_char_p, []),
    "forge_error": (c_char_p, []),
    "forge_free": (None, [c_void_p]),
    "forge_variant_name": (c_char_p, [c_size_t]),
    "forge_variant_summary": (c_char_p, [c_size_t]),
    "forge_variant_definition": (c_int32, [c_char_p, POINTER(c_char_p)]),
    "forge_composition_parts": (c_int32, [POINTER(c_void_p)]),
    "forge_compose": (c_int32, [POINTER(Option), c_size_t, POINTER(c_void_p)]),
    "forge_lower": (c_int32, [c_char_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "forge_infer": (c_int32, [c_char_p, c_char_p, c_size_t]),
    "forge_verify": (c_int32, [c_char_p, c_char_p, POINTER(Option), c_size_t]),
    "forge_compile": (c_int32, [c_char_p, c_char_p, POINTER(Option), c_size_t, POINTER(c_void_p)]),
    "forge_destroy": (None, [c_void_p]),
    "forge_describe": (c_char_p, [c_void_p]),
    "forge_explain": (c_char_p, [c_void_p]),
    "forge_cost": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "forge_source": (c_int32, [c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_char_p)]),
    "forge_resources": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "forge_check": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "forge_workspace_bytes": (c_int32, [c_void_p, POINTER(Bounds), POINTER(c_size_t), POINTER(c_size_t)]),
    "forge_launch": (c_int32, [c_void_p, c_void_p]),
    "forge_package": (
        c_int32, [POINTER(c_char_p), c_size_t, POINTER(Option), c_size_t, Progress, c_void_p, POINTER(c_void_p)],
    ),
    "forge_group_create": (
        c_int32, [c_int32, c_int32, AllGather, c_void_p, POINTER(Option), c_size_t, POINTER(c_void_p)],
    ),
    "forge_group_create_mpi": (c_int32, [POINTER(Option), c_size_t, POINTER(c_void_p)]),
    "forge_group_destroy": (None, [c_void_p]),
    "forge_group_check": (c_int32, [c_void_p]),
    "forge_group_abort": (c_int32, [c_void_p]),
    "forge_group_rank": (c_int32, [c_void_p]),
    "forge_group_size": (c_int32, [c_void_p]),
    "forge_group_describe": (c_char_p, [c_void_p]),
    "forge_launch_ranks": (c_int32, [c_void_p, c_void_p, c_void_p, c_int32, c_int32]),
    "forge_partition": (c_int32, [POINTER(c_int64), c_size_t, c_int32, c_int32, POINTER(c_int64), POINTER(c_void_p)]),
    "forge_explain_ranks": (c_int32, [c_void_p, c_int32, c_int64, c_char_p, POINTER(c_void_p)]),
}  # fmt: skip

_lock = threading.Lock()
_library = None


def _candidates() -> list[Path]:
    """Where the library may be: FORGE_LIBRARY, inside the installed package (which is in two folders if the
    installation is an editable one), in a build folder of the repository."""
    if path := os.environ.get("FORGE_LIBRARY"):
        return [Path(path)]
    package = sys.modules[__package__ or "forge"].__path__
    return [
        *(Path(folder) / "lib" / "libforge.so" for folder in package),
        Path(__file__).resolve().parents[2] / "build" / "libforge.so",
    ]


def library() -> ctypes.CDLL:
    """The loaded library; raises ImportError where there is none, or one of another ABI."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def _load() -> ctypes.CDLL:
    places = _candidates()
    path = next((p for p in places if p.exists()), None)
    if path is None:
        raise ImportError("libforge.so is in none of: " + ", ".join(map(str, places)))
    lib = ctypes.CDLL(str(path))
    lib.forge_abi_version.restype = c_uint32
    major, minor = divmod(lib.forge_abi_version(), 1 << 16)
    if major != ABI_MAJOR or minor < ABI_MINOR:
        raise ImportError(f"{path} has ABI {major}.{minor}, this package needs {ABI_MAJOR}.{ABI_MINOR}")
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


_EXCEPTIONS = {
    1: CompileError, 2: RuntimeError, 3: ValueError, 4: MemoryError, 6: RuntimeError, 7: PeerTimeout, 8: PlanMismatch,
    9: GroupAborted,
}  # fmt: skip


def exception_of(status: int) -> type[Exception]:
    """What a status other than 0 stands for."""
    return _EXCEPTIONS.get(status, InternalError)


def check(status: int) -> None:
    """Raises what a status other than 0 stands for."""
    if status:
        raise exception_of(status)(library().forge_error().decode())


def _taken(text: c_void_p) -> str:
    """A text that the library allocated, as str; frees it."""
    try:
        return ctypes.string_at(text).decode()
    finally:
        library().forge_free(text)


def variant_names() -> list[str]:
    """The ready-made variants."""
    lib = library()
    names: list[str] = []
    while (name := lib.forge_variant_name(len(names))) is not None:
        names.append(name.decode())
    return names


def variant_summary(name: str) -> str:
    """The recurrence of a ready-made variant, in one line."""
    return library().forge_variant_summary(variant_names().index(name)).decode()


def variant_definition(name: str) -> str:
    """The definition of a ready-made variant in text form."""
    text = c_char_p()
    check(library().forge_variant_definition(name.encode(), byref(text)))
    return (text.value or b"").decode()


def composition_parts() -> list[dict[str, Any]]:
    """What there is to compose variants of: parts, with their choices."""
    text = c_void_p()
    check(library().forge_composition_parts(byref(text)))
    return json.loads(_taken(text))


def compose(choices: Mapping[str, Any]) -> str:
    """The variant of these choices in text form; ValueError with the reason where there is none."""
    text = c_void_p()
    check(library().forge_compose(*_options(choices), byref(text)))
    return _taken(text)


def lower(definition: str, stage: str, dtype: str = "bf16") -> str:
    """A definition printed at a stage of the compiler: definition, joined or optimized."""
    text = c_void_p()
    check(library().forge_lower(definition.encode(), dtype.encode(), stage.encode(), byref(text)))
    return _taken(text)


def infer(operation: str) -> str:
    """The type of one operation's result: infer("exp(f32[C])") is "f32[C]". CompileError if the operands do not fit."""
    buffer = ctypes.create_string_buffer(512)
    check(library().forge_infer(operation.encode(), buffer, len(buffer)))
    return buffer.value.decode()


def _options(options: Mapping[str, Any]) -> tuple[ctypes.Array[Option], int]:
    """Options as C takes them, and how many there are. Truth values are numbers."""
    pairs: Any = [
        (name.encode(), str(int(value) if isinstance(value, bool) else value).encode())
        for name, value in options.items()
    ]
    return (Option * len(pairs))(*pairs), len(pairs)


def verify(definition: str, options: Mapping[str, Any]) -> None:
    """The errors of compiling that depend neither on sizes nor on the machine."""
    try:
        check(library().forge_verify(definition.encode(), None, *_options({"dtype": "f32", **options})))
    except ValueError as wrong:
        raise _likely_option(wrong, options) from None


def package(definitions: Sequence[str], options: Mapping[str, Any], progress: Any = None) -> list[str]:
    """Compiles definitions into a package; the files that it wrote. `progress(done, all, what)` follows the work."""
    texts = (c_char_p * len(definitions))(*(text.encode() for text in definitions))
    follow = Progress((lambda _, done, all, what: progress(done, all, what.decode())) if progress else 0)
    files = c_void_p()
    check(library().forge_package(texts, len(definitions), *_options(options), follow, None, byref(files)))
    return _taken(files).splitlines()


def _likely_option(wrong: ValueError, options: Mapping[str, Any]) -> ValueError:
    """The same error, with the option that was meant if one is unknown and another one near."""
    given, separator, known = str(wrong).partition(": expected one of ")
    name = given.removeprefix("option ").strip("'")
    return (
        ValueError(f"{given}{suggestion(name, known.split(', '))}{separator}{known}")
        if separator and name in options
        else wrong
    )


class Compiled:
    """A compiled variant. `info` is what forge_describe says of it; `tensors` are its places, in the order of calls."""

    def __init__(self, definition: str, options: Mapping[str, Any], file: str | None = None) -> None:
        lib, handle = library(), c_void_p()
        check(
            lib.forge_compile(definition.encode(), file.encode() if file else None, *_options(options), byref(handle))
        )
        self._made_from = definition, dict(options), file
        self._handle: c_void_p | None = handle
        self._destroy = lib.forge_destroy
        self._launch, self._check = lib.forge_launch, check
        self.request: dict[str, Any] = {}  #: what `Attention.compile` takes to have this again; set there
        self.info = json.loads(lib.forge_describe(handle))
        self.tensors = self.info["tensors"]
        self.scalars = self.info["scalars"]
        self._workspaces: dict[tuple[Any, ...], int] = {}

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._destroy(self._handle)
            self._handle = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _compiled_again, (*self._made_from, self.request)

    def __dir__(self) -> list[str]:
        return [n for n in object.__dir__(self) if not n.startswith("_")]

    def explain_ranks(self, ranks: int, lanes: int = 1, link: str = "shared-memory") -> str:
        """What calls of `lanes` sequences times heads exchange over so many ranks, and what each scheme costs."""
        text = c_void_p()
        check(library().forge_explain_ranks(self._handle, ranks, lanes, link.encode(), byref(text)))
        return _taken(text)

    def explain(self) -> str:
        text = library().forge_explain(self._handle)
        if text is None:
            raise InternalError(library().forge_error().decode())
        return text.decode()

    def cost(self, form: str) -> str:
        """What forge_cost says: json, text or html."""
        text = c_void_p()
        check(library().forge_cost(self._handle, form.encode(), byref(text)))
        return _taken(text)

    def sources(self) -> dict[str, str]:
        """The generated files by name."""
        found: dict[str, str] = {}
        name, text = c_char_p(), c_char_p()
        while True:
            check(library().forge_source(self._handle, len(found), byref(name), byref(text)))
            if name.value is None or text.value is None:
                return found
            found[name.value.decode()] = text.value.decode()

    def resources(self) -> list[dict[str, Any]]:
        """What forge_resources says of a GPU's kernels: registers, bytes that were spilled, bytes of stack."""
        text = c_void_p()
        check(library().forge_resources(self._handle, byref(text)))
        return json.loads(_taken(text))

    def check(self) -> dict[str, Any]:
        """The report of forge_check."""
        text = c_void_p()
        check(library().forge_check(self._handle, byref(text)))
        return json.loads(_taken(text))

    def workspace_bytes(self, sequences: int, tokens: int, heads: int, packed: bool) -> int:
        """Bytes that calls within these bounds need (packed: tokens of all sequences together)."""
        key = (sequences, tokens, heads, packed)
        known = self._workspaces.get(key)
        if known is None:
            bounds, size, alignment = (
                Bounds(ctypes.sizeof(Bounds), sequences, tokens, heads, packed),
                c_size_t(),
                c_size_t(),
            )
            check(library().forge_workspace_bytes(self._handle, byref(bounds), byref(size), byref(alignment)))
            known = self._workspaces[key] = size.value
        return known


def _compiled_again(definition: str, options: dict[str, Any], file: str | None, request: dict[str, Any]) -> Compiled:
    """A copy of a compiled variant, in whatever process: kernels come from the cache."""
    compiled = Compiled(definition, options, file)
    compiled.request = request
    return compiled
