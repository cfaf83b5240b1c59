"""Rewrites of definitions in text form: inputs that a program sees only after a function, or in another element type.

They let operators take raw gates and unnormalised keys without a second copy of any definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ._location import Location
from ._tensor import Tensor
from ._trace import Trace

_FUNCTION = re.compile(r"^  func @(\w+) \{\n(.*?)^  \}\n", re.MULTILINE | re.DOTALL)


def _param_of(name: str) -> re.Pattern[str]:
    return re.compile(
        rf'^    %(\S+): (\w+)(\[[^\]]*\]) = param\(\) \{{name="{name}", role=(input|head)\}}.*\n', re.MULTILINE
    )


def retyped(text: str, name: str, dtype: str) -> str:
    """`name` declared as another element type. The program must convert it before use."""
    text, found = re.subn(rf"^(  input {name}: )\w+", rf"\g<1>{dtype}", text, flags=re.MULTILINE)
    if not found:
        raise ValueError(f"there is no input {name!r}")

    def change(function: re.Match[str]) -> str:
        if function[1] == "step":  # sees float32 anyway
            return function[0]
        return _param_of(name).sub(lambda p: p[0].replace(f": {p[2]}[", f": {dtype}[", 1), function[0])

    return _FUNCTION.sub(change, text)


class Raw:
    """How an input comes to a program: `fn(input, **further arguments)`, with `more` of them as {name: (role, dims,
    phase type)}."""

    def __init__(self, fn: Callable[..., Tensor], more: Mapping[str, tuple[str, str, str]] | None = None) -> None:
        self.fn, self.more = fn, dict(more or {})


def prepended(text: str, inputs: Mapping[str, Raw]) -> str:
    """The definition with every use of an input replaced by its function of the raw input and of further arguments."""
    declarations = {}
    for raw in inputs.values():
        declarations.update({n: f"  {role} {n}: {dims}\n" for n, (role, dims, _) in raw.more.items() if role != "mask"})

    def change(function: re.Match[str]) -> str:
        body = function[2]
        for name, raw in inputs.items():
            body = _param_of(name).sub(
                lambda p, name=name, raw=raw: _replacement(name, raw, p, function[1] == "step"), body
            )
        return f"  func @{function[1]} {{\n{_params_once(body)}  }}\n"

    text = _FUNCTION.sub(change, text)
    first_state = text.index("\n  state ") + 1
    return text[:first_state] + "".join(declarations.values()) + text[first_state:]


def _replacement(name: str, raw: Raw, param: re.Match[str], step: bool) -> str:
    """Lines that compute what `param` was."""
    value, dtype, dims, role = param.groups()
    where = Location(__file__, 1)
    trace = Trace("", {}, prefix=f"{name}.")  # names that the program has not
    original = Tensor(trace, f"raw_{name}", f"{dtype}{dims}")
    trace.lines.append(f'%raw_{name}: {dtype}{dims} = param() {{name="{name}", role={role}}}{where.text}')
    arguments = {}
    for n, (kind, _, type_) in raw.more.items():
        arguments[n] = trace.param(n, n, kind, "f32[]" if kind == "mask" and step else type_, where)
    result = raw.fn(original, **arguments)
    result = result if result.dtype == dtype else result.to(dtype)
    lines = [re.sub(rf"%{re.escape(result.name)}(?=[:,) ])", f"%{value}", line) for line in trace.lines]
    return "".join(f"    {line}\n" for line in lines)


def _params_once(body: str) -> str:
    """Two inputs may take the same further argument."""
    seen, lines = set(), []
    for line in body.splitlines(keepends=True):
        if "= param() " in line:
            key = line.split(" loc(")[0].strip()
            if key in seen:
                continue
            seen.add(key)
        lines.append(line)
    return "".join(lines)
