"""What is compiled of a variant, and what can be seen of it: its stages, costs, sources and resources."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _c, _measure
from ._calls import Signature, rounded_up
from ._decode import OF_SEQUENCES
from ._location import Location
from ._notice import notice
from ._suggest import suggestion
from ._types import DTypeLike, dtype_name

AHEAD = ("forward", "decode")  #: entry points of packages that calls come from
CHUNK = 64  #: tokens between the states that return_intermediate_states returns, unless options say otherwise
KEPT_CHUNK = 32  #: likewise, between those that a forward pass keeps for its backward pass


def _request_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """What `Attention.compile` takes, as `_compiled_for` does."""
    known = ("device", "dtype", "sequences", "tokens", "heads", "on", "entry")
    named = {name: request[name] for name in known}
    return {**named, "sizes": {name: n for name, n in request.items() if name not in known}}


class Variant:
    """A definition in text form with the options that it is compiled with, compiled for whatever it is asked for."""

    definition: str  #: in text form
    name: str
    options: dict[str, Any]
    signature: Signature  #: inputs, states and outputs, as declared

    def __init__(
        self,
        definition: str,
        options: Mapping[str, Any] | None,
        allowed: Mapping[str, tuple[int, ...]] | None,
        sp_group: Any,
    ) -> None:
        self._sp_group = sp_group
        self.options = {name: value for name, value in dict(options or {}).items() if value is not None}
        self._checkpoint = self.options.pop("checkpoint", "auto")  #: what a forward pass keeps for the backward pass
        if self._checkpoint not in ("auto", "keep", "remake"):
            raise ValueError(f"options['checkpoint']: expected auto, keep or remake, got {self._checkpoint!r}")
        _c.verify(definition, self.options)
        self.definition = definition
        self.signature = Signature(definition)
        self.name = self.signature.name
        self._allowed = dict(allowed or {})  #: the values that ConstExpr leave a symbol
        self._ahead: tuple[Path, str] | None = None  #: a package whose kernels calls get, and for which kind of device
        self._forget()

    def _forget(self) -> None:
        """Begins without anything compiled."""
        self._compiled: dict[tuple[Any, ...], _c.Compiled] = {}
        self._packages: dict[str, Any] = {}  #: the package, opened, by device
        self._warned: set[str] = set()  #: reasons for slower kernels that the user has read
        self._last: _c.Compiled | None = (
            None  #: what `compile` or `check` compiled last, to look inside before the first call
        )
        self._lock = threading.Lock()

    def _of_chunks(self, entry: str, length: int = 0) -> dict[str, Any]:
        """Options of calls that have the states before chunks of so many tokens, or before tokens."""
        if entry == "decode":
            return {"chunk_states": 1}
        return {"chunk_states": 1, "chunk": self.options.get("chunk") or length or CHUNK}

    def _compiled_for(
        self,
        device: str,
        dtype: str,
        sizes: Mapping[str, int],
        sequences: int = 1,
        tokens: int = 4096,
        heads: int = 4,
        packed: bool = False,
        on: str | None = None,
        more: Mapping[str, Any] | None = None,
        entry: str = "forward",
    ) -> _c.Compiled:
        """The variant for these sizes, compiled for calls of about this shape: lengths within a factor of two share
        one; those of `decode` all do."""
        length = tokens // max(1, sequences) if packed else tokens
        expected = {
            "expected_tokens": rounded_up(length, 2, 64),
            "expected_sequences": rounded_up(max(1, sequences), 2, 1),
            "expected_heads": heads,
        }
        named = {f"size.{s}": n for s, n in sorted(sizes.items())}
        chosen = self.options
        if entry == "decode":
            expected["expected_tokens"] = 1
            chosen = {"entry": entry, **{name: value for name, value in chosen.items() if name not in OF_SEQUENCES}}
        elif entry == "backward":
            chosen = {**chosen, "entry": entry}
        elif chosen.get("batch_invariant"):  # the same kernels whether states before chunks are wanted or not
            more = {**(more or {}), **self._of_chunks(entry)}
        if chosen.get("batch_invariant"):
            expected = {}
        options: dict[str, Any] = {"device": device, "dtype": dtype, **named, **expected, **chosen, **(more or {})}
        if on is not None:
            options["on"] = on
        key = tuple(options.items())
        with self._lock:
            if key not in self._compiled and on is None and not more:
                if ready := self._packaged(entry, device, dtype, sizes):
                    self._compiled[key] = ready
            if key not in self._compiled:
                with notice(
                    f"forge: compiling {self.name} for {on or device} "
                    f"({', '.join([dtype, *(f'{s} = {n}' for s, n in sizes.items())])}) …"
                ):
                    compiled = self._compiled[key] = _c.Compiled(self.definition, options)
                compiled.request = dict(
                    device=device,
                    dtype=dtype,
                    sequences=sequences,
                    tokens=length,
                    heads=heads,
                    on=on,
                    entry=entry,
                    **sizes,
                )
        return self._compiled[key]

    def _packaged(self, entry: str, device: str, dtype: str, sizes: Mapping[str, int]) -> Any:
        """The package's kernels, in the place of compiled ones; None where it has none for such a call, or for a group
        of ranks, which also wants summaries."""
        if self._ahead is None or entry not in AHEAD or device.partition(":")[0] != self._ahead[1]:
            return None
        if self._sp_group is not None:
            return None
        from ._packaged import Package

        if device not in self._packages:
            self._packages[device] = Package(self._ahead[0], device)
        return self._packages[device].find(self.name, entry, dtype, sizes)

    def _warn_of(self, compiled: _c.Compiled) -> None:
        """Warns, once per reason, of portable kernels where the program could have better ones."""
        if compiled.info["engine"] != "portable":
            return
        reasons = [r for r in compiled.info["refused"] if r["way_out"] and r["reason"] not in self._warned]
        if not reasons:
            return
        self._warned.update(r["reason"] for r in reasons)
        listed = "".join(f"\n    not {r['engine']}: {r['why']}\n        way out: {r['way_out']}" for r in reasons)
        text = f"{self.name}: portable kernels, where the GPU ({compiled.info['arch']}) may run faster ones:{listed}"
        where = Location.of_caller()
        warnings.warn_explicit(text, _c.PerformanceWarning, where.file, where.line)

    # -- looking inside ------------------------------------------------------------------------------------------------

    def compile(
        self,
        device: str | None = None,
        dtype: DTypeLike = "bf16",
        sequences: int = 1,
        tokens: int = 4096,
        heads: int = 4,
        on: str | None = None,
        entry: str = "forward",
        **sizes: int,
    ) -> _c.Compiled:
        """Compiles ahead of calls of about this shape; `sizes` are those that no ConstExpr fixes: K=128, V=128.
        `device`: cpu (the default) or a GPU of this machine. `on`: a GPU that need not be there, by the name of its
        facts (h200, a100, …) or the path of a file of such; what comes can be looked into, but not called.
        `entry`: "decode" compiles what `decode` calls, for however many tokens; "backward" gradients."""
        self._last = self._compile(device, dtype, sequences, tokens, heads, on, entry, **sizes)
        self._warn_of(self._last)
        return self._last

    def _compile(
        self,
        device: str | None = None,
        dtype: DTypeLike = "bf16",
        sequences: int = 1,
        tokens: int = 4096,
        heads: int = 4,
        on: str | None = None,
        entry: str = "forward",
        **sizes: int,
    ) -> _c.Compiled:
        if entry not in ("forward", "decode", "backward"):
            raise ValueError(
                f"{self.name}: argument 'entry': expected 'forward', 'decode' or 'backward', got {entry!r}"
            )
        known = {s: v[0] for s, v in self._allowed.items() if s in self.signature.symbols}
        self._check_sizes(sizes, ("device", "dtype", "sequences", "tokens", "heads", "on", "entry"))
        for name, n, least in (("sequences", sequences, 0), ("tokens", tokens, 0), ("heads", heads, 1)):
            if n < least:
                raise ValueError(f"{self.name}: argument {name!r}: expected at least {least}, got {n}")
        if missing := set(self.signature.symbols) - set(known) - set(sizes):
            raise TypeError(
                f"{self.name}: expected the sizes {', '.join(sorted(missing))}, such as {sorted(missing)[0]}=128"
            )
        device = device or ("cuda" if on else "cpu")
        return self._compiled_for(
            device, dtype_name(dtype), {**known, **sizes}, sequences, tokens, heads, on=on, entry=entry
        )

    def _check_sizes(self, sizes: Mapping[str, int], arguments: tuple[str, ...]) -> None:
        """TypeError for sizes of symbols that there are not; `arguments`: what may have been meant besides."""
        symbols = self.signature.symbols
        if unknown := sorted(set(sizes) - set(symbols)):
            meant = {"H": "heads", "T": "tokens", "B": "sequences"}.get(unknown[0])
            likely = f", did you mean {meant!r}?" if meant else suggestion(unknown[0], [*symbols, *arguments])
            raise TypeError(f"{self.name}: there is no size {unknown[0]!r}{likely}; it has {', '.join(symbols)}")

    def _seen(self) -> _c.Compiled | None:
        """What `compile` or `check` compiled last."""
        return self._last

    def _chosen(self, options: Mapping[str, Any]) -> _c.Compiled:
        """What the last call used; with options, that with these changes."""
        last = self._seen()
        if last is not None and not options:
            return last
        if last is None:
            return self._compile(**options)
        moved = {"device": None, "on": None} if {"device", "on"} & set(options) else {}
        return self._compile(**{**last.request, **moved, **options})

    @property
    def info(self) -> dict[str, Any]:
        """What include/forge_c.h's forge_describe says of what the last call used: device, strategy, kernels, sizes,
        …"""
        return self._chosen({}).info

    def explain(self, **options: Any) -> str:
        """Every stage of the compiler and the schedule with its reasons: of the last call. Options as those of
        `compile` change what is explained: explain(on="h200")."""
        return self._chosen(options).explain()

    def cost(self, **options: Any) -> _measure.Cost:
        """What a call costs, kernel by kernel: operations, bytes, tasks, the time that each resource takes, the time
        predicted, and what it is bound by. Of the last call, with the changes of options as those of `compile`:
        cost(on="h200", tokens=8192, heads=32, K=128, V=128). On a GPU that need not be there nothing is compiled."""
        compiled = self._chosen(options)
        asked: dict[str, Any] = {**compiled.request, **{n: options[n] for n in ("tokens", "sequences") if n in options}}
        if asked["entry"] != "decode":  # calls of about one length share kernels; costs are of the very one
            exact = {"expected_tokens": asked["tokens"], "expected_sequences": max(1, asked["sequences"])}
            compiled = self._compiled_for(**_request_of(asked), more=exact)
        call = json.loads(compiled.cost("json"))[0]
        return _measure.Cost(**call, text=compiled.cost("text"), html=compiled.cost("html"))

    def source(self, **options: Any) -> str:
        """The generated source code: of the last call, with the changes of options as those of `compile`."""
        return "\n".join(f"// {name}\n{text}" for name, text in self._chosen(options).sources().items())

    def resources(self, **options: Any) -> list[dict[str, Any]]:
        """Registers and spilled bytes of a GPU's kernels, by its assembler: of the last call, with the changes of
        options as those of `compile`. With `on` this is what compiles them; RuntimeError where there is neither NVRTC
        nor nvcc."""
        return self._chosen(options).resources()

    def check(self, backward: bool = False, **options: Any) -> _measure.CheckReport:
        """Runs awkward problems (ragged, packed, empty, strong gates, …) on the CPU and compares them in float64 with
        `step`, or with the three phases where a definition has no step; with `backward` the gradients, with those of
        `step`. The report prints as a table, and is true if all is right."""
        options = {"dtype": "f32", **({"entry": "backward"} if backward else {}), **options}
        sizes = {s: 32 for s in self.signature.symbols if s not in self._allowed and s not in options}
        return _measure.CheckReport(self.name, self.compile(**{**sizes, **options}).check())
