"""Tracing: the callables run once on `Tensor`s that record what is done with them, as lines of the text form.

The rules of types are the compiler's (forge_infer), asked for each operation: a mistake is raised at the line that
makes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import _c
from ._location import Location, error, number_text
from ._tensor import Tensor
from ._types import factor_and_symbol


class Trace:
    """One phase being recorded; `sizes` are the symbols that a ConstExpr fixed to one value."""

    def __init__(self, phase: str, sizes: dict[str, int], prefix: str = "") -> None:
        self.phase, self.sizes, self._prefix = phase, sizes, prefix
        self.lines: list[str] = []
        self.cached: dict[str, Tensor] = {}
        self._names: set[str] = set()

    def _fresh(self, hint: str | None) -> str:
        if not hint or not hint.isidentifier() or not hint.isascii():
            return f"{self._prefix}{len(self.lines)}"
        name, n = hint, 2
        while name in self._names:
            name, n = f"{hint}.{n}", n + 1
        self._names.add(name)
        return name

    def add(
        self,
        operation: str,
        inputs: Sequence[Tensor],
        attributes: str,
        type_: str,
        where: Location,
        hint: str | None = None,
    ) -> Tensor:
        """Appends an operation whose result's type is known."""
        name = self._fresh(hint)
        arguments = ", ".join(f"%{x.name}" for x in inputs)
        self.lines.append(
            f"%{name}: {type_} = {operation}({arguments}){' {' + attributes + '}' if attributes else ''}{where.text}"
        )
        return Tensor(self, name, type_)

    def op(
        self,
        operation: str,
        inputs: Sequence[Tensor],
        own: str | None = None,
        hint: str | None = None,
        **attributes: object,
    ) -> Tensor:
        """Appends an operation; `own` is the type of results that do not follow from the operands."""
        where = Location.of_caller()
        for x in inputs:
            if x.trace is not self:
                raise error(
                    where,
                    f"{operation}: a tensor of another phase\n    hint:     name the value with cache_result and take "
                    f"it as an argument",
                )
        text = ", ".join(f"{key}={value}" for key, value in attributes.items())
        more = (" {" + text + "}" if text else "") + (" : " + own if own else "")
        query = f"{operation}({', '.join(x.type for x in inputs)}){more}"
        try:
            type_ = _c.infer(query)
        except _c.CompileError as mistake:
            raise error(where, str(mistake)) from None
        return self.add(operation, inputs, text, type_, where, hint)

    def constant(self, value: float) -> Tensor:
        return self.add("constant", [], f"value={number_text(float(value))}", "f32[]", Location.of_caller())

    def size(self, dim: str) -> Tensor:
        """The size of an axis as a number."""
        factor, symbol = factor_and_symbol(dim)
        return self.op("size", [], own="f32[]", name=f'"{symbol}"', count=factor) if symbol else self.constant(factor)

    def param(self, name: str, declared: str, role: str, type_: str, where: Location) -> Tensor:
        return self.add("param", [], f'name="{declared}", role={role}', type_, where, hint=name)
