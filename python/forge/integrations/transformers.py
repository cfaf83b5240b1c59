"""Forge under an installed transformers: models with linear attention run, `generate` and train on Forge's kernels.

    forge.integrations.transformers.patch()            # from now on; unpatch() takes it back
    with forge.integrations.transformers.patched(): …  # or for a while

Models of transformers call their recurrences as functions of their modules: the gated delta rule (Qwen3-Next, Qwen3.5,
OLMo hybrid), Kimi delta attention (Kimi Linear), and Mamba-2's scan (Mamba-2, Bamba, Falcon-H1, Zamba2, Granite hybrid,
Nemotron-H). `patch` puts Forge's in their place, in all modules of models that are imported or will be. Projections,
convolutions, norms and caches stay transformers' own. A call that Forge refuses before anything of it ran goes to
transformers' own function, and the logger "forge" says why, once.

Functions for one token write the new state over the one that they are given, where that is float32 and wanted back: it
is the cache's, in which models put the new state anyway. docs/transformers.md lists the models that are tested.
Importing this module loads neither PyTorch nor transformers.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .. import _c
from .._patch import Patch, log

__all__ = ["patch", "patched", "unpatch"]

_patch = Patch("forge.integrations.transformers", "transformers", "transformers")

#: What makes a model's function of the kernel that is there for it; what is imported later asks for it by this name.
_DECORATOR = "use_kernel_func_from_hub_with_fallback"
_HOMES = ("transformers.integrations", "transformers.integrations.hub_kernels")
#: Recurrences that Forge does not stand in for, by their names in models' modules.
_ALONE = {
    "mamba_selective_scan": "Mamba-1's scan",
    "rwkv_linear_attention": "RWKV-4's",
    "MiniMaxLightningAttention": "MiniMax's lightning attention",
}

# ------------------------------------------------------------------------------------------ in the place of models' own


def _delta_rule(name: str) -> Callable[..., Any]:
    """By the operator of forge.ops that computes it."""

    def attend(
        query: Any, key: Any, value: Any, g: Any, beta: Any, chunk_size: int = 64, initial_state: Any = None,
        output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        return _attend(
            name, (query, key, value, g, beta), initial_state, output_final_state, cu_seqlens,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        )  # fmt: skip

    return attend


def _delta_rule_of_tokens(name: str) -> Callable[..., Any]:
    """The same, token by token."""

    def attend(
        query: Any, key: Any, value: Any, g: Any, beta: Any, initial_state: Any = None, output_final_state: bool =
        False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        return _attend(
            name, (query, key, value, g, beta), initial_state, output_final_state, cu_seqlens, in_place=True,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        )  # fmt: skip

    return attend


def _mamba2_scan(
    hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, chunk_size: int, D: Any = None, dt_bias: Any = None,
    initial_states: Any = None, dt_softplus: bool = False, dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False, z: Any = None, seq_idx: Any = None, cu_seqlens: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """Mamba-2 is attention with scalar decay: S = e^(A dt) S + dt x Bᵀ, y = (S C + D x) silu(z)."""
    if seq_idx is not None:
        raise NotImplementedError("mamba2_chunk_scan: expected packed sequences as `cu_seqlens`, got `seq_idx`")
    dt = _time_steps(dt, dt_bias, dt_softplus).clamp(*dt_limit)
    o, state = _mamba2(hidden_states, dt, A, B, C, D, z, initial_states, return_final_states, cu_seqlens)
    return (o, state) if return_final_states else o


def _mamba2_step(
    state: Any, hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, dt_bias: Any = None, dt_softplus:
    bool = False, z: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """One token, [batch, heads, …], in place; numbers per head come expanded over what a head has."""
    dt, A = _per_head("dt", dt, 1), _per_head("A", A, 2)
    dt = _time_steps(dt, None if dt_bias is None else _per_head("dt_bias", dt_bias, 1), dt_softplus)
    D = None if D is None else _per_head("D", D, 1)
    token = [None if x is None else x[:, None] for x in (hidden_states, dt, B, C, z)]
    x, dt, B, C, z = token
    o, new = _mamba2(x, dt, A, B, C, D, z, state, True, in_place=True)
    if new is not state:
        state.copy_(new)
    return o[:, 0]


#: By their names in the modules of models.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch_chunk_gated_delta_rule": _delta_rule("chunk_gated_delta_rule"),
    "torch_recurrent_gated_delta_rule": _delta_rule_of_tokens("chunk_gated_delta_rule"),
    "chunk_kimi_delta_attention": _delta_rule("chunk_kda"),
    "recurrent_kimi_delta_attention": _delta_rule_of_tokens("chunk_kda"),
    "mamba2_chunk_scan": _mamba2_scan,
    "mamba2_selective_state_update": _mamba2_step,
}


def _mamba2(
    x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, z: Any, initial: Any, final: bool, cu_seqlens: Any = None,
    in_place: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    values = x * dt[..., None].to(x.dtype)
    o, state = _attend(
        "chunk_simple_gla", (C, B, values, A.float() * dt), initial, final, cu_seqlens, in_place, scale=1.0,
        state_v_first=True,
    )  # fmt: skip
    o = o if D is None else o + x * D.to(x.dtype)[:, None]
    return (o if z is None else o * _functional().silu(z)), state


def _time_steps(dt: Any, bias: Any, softplus: bool) -> Any:
    dt = dt.float() if bias is None else dt.float() + bias.float()
    return _functional().softplus(dt) if softplus else dt


def _functional() -> Any:
    return sys.modules["torch"].nn.functional


def _per_head(name: str, x: Any, axes: int) -> Any:
    """Without the last axes, along which nothing changes."""
    for _ in range(axes):
        if x.shape[-1] != 1 and x.stride(-1) != 0:
            raise NotImplementedError(
                f"mamba2_selective_state_update: argument {name!r}: expected one number per head, expanded, got "
                f"strides {list(x.stride())}"
            )
        x = x[..., 0]
    return x


def _attend(
    operator: str, tensors: tuple[Any, ...], initial: Any, final: bool, cu_seqlens: Any, in_place: bool = False,
    **more: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """(output, final state) of an operator of forge.ops. `in_place`: the state may be written over, which one kernel
    does that reads it once."""
    from .. import ops
    from ..ops import _dispatch

    call: Any = getattr(ops, operator)
    given = {**more, "initial_state": initial, "output_final_state": final, "cu_seqlens": cu_seqlens}
    if in_place and final and initial is not None and _dispatch.can_advance(*tensors, initial):
        return _dispatch.advanced(call.__wrapped__(*tensors, **given)), initial
    o, state = call(*tensors, **given)
    return o, state


# --------------------------------------------------------------------------------------------------------- patching


def patch() -> tuple[str, ...]:
    """Puts Forge under transformers and returns the names of the functions that are Forge's in models that have them,
    now and when they are imported. ImportError without transformers, one that is too old, PyTorch or Forge's library.
    """
    _c.library()
    transformers = _imported("transformers")
    homes = [_imported(name) for name in _HOMES]
    if not all(hasattr(home, _DECORATOR) for home in homes):
        raise ImportError(
            f"forge.integrations.transformers: expected transformers whose models have functions for their kernels "
            f"(transformers.integrations.{_DECORATOR}), got {transformers.__version__}: pip install -U transformers"
        )
    with _patch.lock:
        decorator = getattr(homes[1], _DECORATOR)
        if not hasattr(decorator, "_forge"):
            _patch.exchange_for(decorator, _standing_in(decorator))
        models = [(n, m) for n, m in list(sys.modules.items()) if n.startswith("transformers.models.")]
        for _, module in models:
            for name, ours in _FUNCTIONS.items():
                if callable(theirs := vars(module).get(name)):
                    _patch.stand_in(theirs, ours, name)
        before = _patch.active
        changed = _patch.put()
        if changed or not before:
            alone = [
                f"{what} of {n.split('.')[2]}" for n, m in models for key, what in _ALONE.items() if key in vars(m)
            ]
            log.info(
                "%s: recurrences of transformers %s are Forge's now, in %d modules and those to come; left alone: "
                "convolutions%s", _patch.label, transformers.__version__, changed - len(homes),
                "".join(f", {each}" for each in alone),
            )  # fmt: skip
    return tuple(sorted(_FUNCTIONS))


def unpatch() -> None:
    """Gives models their own functions back. Without a patch it does nothing."""
    _patch.take_back()


def patched() -> AbstractContextManager[tuple[str, ...]]:
    """`patch`, and in the end what was before it: within another patch that one goes on."""
    return _patch.during(patch)


def _standing_in(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator, for modules that are imported from now on."""

    @functools.wraps(decorator)
    def of_kernel(*args: Any, **kwargs: Any) -> Any:
        decorate = decorator(*args, **kwargs)

        def made(function: Callable[..., Any]) -> Any:
            theirs, name = decorate(function), function.__name__
            return _patch.stand_in(theirs, _FUNCTIONS[name], name) if name in _FUNCTIONS else theirs

        return made

    of_kernel._forge = True  # type: ignore[attr-defined]
    return of_kernel


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not name.startswith(missing.name):  # something that transformers itself wants
            raise
        raise ImportError("forge.integrations.transformers needs transformers: pip install transformers") from missing
