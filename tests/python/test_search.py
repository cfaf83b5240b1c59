"""forge.search: what it finds, prices and remembers. Training is tried where PyTorch is."""

import importlib.util
import math
import re
from pathlib import Path

import pytest

import forge
from forge import SymbTensor, _search


def test_what_is_found_is_priced_and_told():
    report = forge.search(decay=["none", "vector"], update=["additive", "oja"], progress=False)
    assert [r.variant for r in report.found] == ["linear attention", "decay=vector", "update=oja"]
    assert all(r.seconds > 0 and r.bytes > 0 and r.operations > 0 and r.state_bytes == 65536 for r in report.found)
    assert "rows that decay apart" in report.refused["decay=vector update=oja"]
    assert re.search(r"decay=vector +22\.\d G +\d+ MB +65\.5 kB +\d+ us", str(report)), report
    assert "1 other combinations make no variant" in str(report)


def test_it_goes_on_from_its_csv(tmp_path, monkeypatch):
    file = tmp_path / "found.csv"
    first = forge.search(decay=["none", "scalar"], csv=file, progress=False)
    assert _search.read(file)[1].seconds == first.found[1].seconds
    priced = []
    monkeypatch.setattr(_search, "price", lambda row, variant: priced.append(row.variant))
    again = forge.search(decay=["none", "scalar", "vector"], csv=file, progress=False)
    assert priced == ["decay=vector"]
    assert [r.seconds for r in again.found[:2]] == [r.seconds for r in first.found]
    forge.search(decay="none", K=64, V=64, csv=file, progress=False)
    assert priced == ["decay=vector", "linear attention"]
    assert len(_search.read(file)) == 4  # what other calls found stays there
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="expected the columns variant,"):
        forge.search(decay="none", csv=file, progress=False)


def fading(i, j, slope):
    return forge.exp(-slope * (i - j))


def test_functions_are_choices_too(tmp_path):
    report = forge.search(
        mask=[None, fading], update=["additive", "delta"], inputs={"slope": SymbTensor(["H"], range=(0, 1))},
        plot=tmp_path / "found.svg", progress=False,
    )  # fmt: skip
    assert {r.variant for r in report.found} == {"linear attention", "update=delta", "mask=fading"}
    assert list(report.refused) == ["mask=fading update=delta"]
    picture = (tmp_path / "found.svg").read_text("utf-8")
    assert picture.count("<circle") == 3
    assert "mask=fading" in picture


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_variant.py"


def test_own_variants_stand_beside_others(tmp_path):
    """That of docs/gallery.md."""
    spec = importlib.util.spec_from_file_location("own_variant", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plot = tmp_path / "found.svg"
    forge.variants.gla.cost(
        on="h200", entry="decode", tokens=1, heads=32, K=128, V=128
    )  # what is priced is no last call
    report = forge.search([module.pointed, "gla"], decay=["none", "scalar"], plot=plot, progress=False)
    assert {r.variant for r in report.found} == {"pointed", "gla", "linear attention", "decay=scalar"}
    assert next(r for r in report.found if r.variant == "gla").operations > 1e10
    picture = plot.read_text("utf-8")
    assert picture.count("<circle") == 5 and picture.count('fill="none" stroke="#1f5fa8"') == 1  # a ring around one
    assert [r.variant for r in forge.search(module.pointed, progress=False).found] == ["pointed"]
    assert module.pointed.check(K=16, V=16).ok


def test_mistakes_are_told():
    with pytest.raises(TypeError, match="functions are choices of mask and transition, and a whole step is a variant"):
        forge.search(update=fading, progress=False)
    with pytest.raises(TypeError, match="unknown part 'step'.*goes into variants="):
        forge.search(step=fading, progress=False)
    with pytest.raises(TypeError, match="argument 'variants': expected variants"):
        forge.search([fading], progress=False)
    with pytest.raises(ValueError, match="no variant 'gated_delta'; did you mean 'gated_delta_net'"):
        forge.search("gated_delta", progress=False)
    with pytest.raises(ValueError, match="'beta' is an input of the chosen parts"):
        forge.compose(update="delta", transition=lambda beta: beta, inputs={"beta": SymbTensor(["T", "H"])})
    with pytest.raises(TypeError, match=r"unknown part 'updates'.*update"):
        forge.search(updates="delta", progress=False)
    with pytest.raises(TypeError, match="argument 'mask': expected functions"):
        forge.search(mask="band", progress=False)
    with pytest.raises(ValueError, match="make no variant: update=hebb: argument 'update'"):
        forge.search(update="hebb", progress=False)
    if importlib.util.find_spec("torch") is None:
        with pytest.raises(ImportError, match="needs PyTorch"):
            forge.search(update="delta", train=1, progress=False)


def row(variant, seconds, accuracy):
    return _search.Found(variant, "", "h200", 1, 1, 1, 1, "f32", seconds=seconds, accuracy=accuracy, steps=1, bound="x")


def test_the_front_has_what_nothing_is_faster_and_better_than():
    rows = [
        row("a", 1e-6, 0.1),
        row("b", 2e-6, 0.3),
        row("c", 3e-6, 0.2),
        row("d", 4e-6, math.nan),
        row("e", 5e-6, 0.9),
    ]
    report = _search.SearchReport(rows)
    assert [r.variant for r in report.pareto] == ["a", "b", "e"]
    assert "0.300 *" in str(report)
    assert _search.picture(report).count("#d1662a") == 4  # its dots and its line


def test_the_command_line(capsys, tmp_path):
    assert _search.main(["--update", "delta,mimo", "--rank", "2,3", "--csv", str(tmp_path / "found.csv")]) == 0
    assert "update=mimo rank=3" in capsys.readouterr().out
    text = tmp_path / "mine.forge"
    text.write_text(forge.variants.retnet.definition.replace("@retnet", "@mine", 1), encoding="utf-8")
    assert _search.main([str(text), "gla"]) == 0
    assert re.search(r"^mine .*\n(.*\n)*gla ", capsys.readouterr().out, re.MULTILINE)
    assert _search.main(["--update", "hebb"]) == 1
    assert "argument 'update'" in capsys.readouterr().err


def test_layers_learn(tmp_path):
    """A few steps: that it runs, is written down, and is not done again."""
    pytest.importorskip("torch")
    file = tmp_path / "found.csv"
    asked = dict(
        update=["additive", "householder"], decay="scalar", features="rotary", train=2, csv=file, progress=False
    )
    found = forge.search("retnet", **asked).found
    assert all(r.steps == 2 and 0 <= r.accuracy <= 1 and r.loss > 0 and r.parameters > 0 for r in found)
    assert [r.train_seconds for r in forge.search("retnet", **asked).found] == [r.train_seconds for r in found]
    (mamba3,) = forge.search("mamba3", train=2, progress=False).found  # which has several rows per token
    assert (
        mamba3.seconds > 0 and mamba3.error == "mamba3 is not trained: layers have one row of one output for each token"
    )


def test_what_diverges_is_no_result():
    pytest.importorskip("torch")

    def growing_step(q, k, v, gate, prev_s):
        s = forge.exp(-gate)[:, None] * prev_s * 1e30 + forge.outer(k, v)
        return s, q @ s

    growing = forge.LinearAttention(
        {n: SymbTensor(["T", "H", d]) for n, d in (("q", "K"), ("k", "K"), ("v", "V"), ("gate", "K"))}
        | {"prev_s": SymbTensor(["NS", "H", "K", "V"])},
        step=growing_step,
    )
    report = forge.search([growing, "retnet"], train=2, progress=False)
    row = next(r for r in report.found if r.variant == "growing")
    assert math.isnan(row.accuracy) and "diverged" in row.error and "gate have no range" in row.error
    assert [r.variant for r in report.pareto] == ["retnet"]
    assert "diverged at the learning rate 0.01" in str(report)
