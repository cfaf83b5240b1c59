"""The options of forge.ops together: covering arrays over all keywords, element types, sizes, heads and layouts
(operators.py)."""

import inspect
import itertools

import pytest

import operators
from covering import covering_array
from forge import _c, ops

ROWS = operators.all_rows()
#: GPUs that rows have kernels for. The CUDA compiler takes some seconds for a row, so that it sees a part of them here,
#: and all with scripts/check-ops --on h200.
GPUS = ("h200", "a100", "rtx4090")


def test_every_pair_of_values_is_in_a_row():
    factors = {"a": (1, 2, 3), "b": "xy", "c": (True, False), "d": (None,), "e": range(4)}
    rows = covering_array(factors)
    assert rows == covering_array(factors) and len(rows) < 20
    for (a, some), (b, others) in itertools.combinations(factors.items(), 2):
        assert {(r[a], r[b]) for r in rows} == set(itertools.product(some, others))


def test_every_parameter_of_every_operator_is_in_the_table():
    recurrent = {name for name in ops.__all__ if name.startswith("fused_recurrent_")}  # requests of the chunk operators
    assert {*ops.__all__} - recurrent == {*operators.TABLE, *operators.ALIASES}
    for alias, name in operators.ALIASES.items():
        assert getattr(ops, alias) is getattr(ops, name)
    for op in operators.TABLE:
        factors = {**operators._EVERY, **operators.TABLE[op]}
        covered = {p for f in factors for p in (f, *operators.STANDS_FOR.get(f, ()))}
        missing = [p for p in operators.parameters(op) if p not in covered]
        assert missing in ([], ["cp_context"]), op  # which is refused, and tested where refusals are
        known = inspect.signature(getattr(ops, op)).parameters
        unknown = [
            f
            for f in operators.TABLE[op]
            if f not in known and f not in operators.STANDS_FOR and f not in (*operators._EVERY, "groups")
        ]
        assert not unknown, op


def test_rows_are_their_texts():
    for row in ROWS:
        assert operators.row_of(operators.text_of(row)) == row


def small(row: dict) -> bool:
    return row["size"] in ("64x64", "96x96", "64x128", "100x100")


#: Some rows of every operator; all of them: scripts/check-ops --device cpu.
ON_THE_CPU = [
    rows[i]
    for op in operators.TABLE
    for rows in [[r for r in ROWS if r["op"] == op and small(r)]]
    for i in range(0, len(rows), 8)
]


@pytest.mark.parametrize("row", ON_THE_CPU, ids=operators.text_of)
def test_against_the_recurrence(row):
    assert not operators.failures_of(row, operators.InNumPy())


needs_facts = pytest.mark.skipif(
    not hasattr(_c.Compiled, "resources"), reason="this library compiles for GPUs that are there only"
)


@needs_facts
@pytest.mark.parametrize("op", operators.TABLE)
@pytest.mark.parametrize("gpu", GPUS)
def test_has_kernels(op, gpu):
    """Every row does, planned and emitted, on every GPU."""
    for row in ROWS:
        if row["op"] == op:
            assert operators.kernels_of(row, gpu).sources(), operators.text_of(row)


@needs_facts
@pytest.mark.parametrize("row", ROWS[::12], ids=operators.text_of)
def test_kernels_compile(row):
    operators.compile_row(row, GPUS[ROWS.index(row) // 8 % len(GPUS)])
