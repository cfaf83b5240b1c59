"""What forge.nn has; PyTorch is loaded here."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from .. import ops

__all__ = [
    "GLA", "HGRN2", "KDA", "RWKV6", "DeltaNet", "GatedDeltaNet", "Layer", "LinearAttention", "Mamba2", "RetNet",
    "State",
]  # fmt: skip

Tensor = Any  #: torch.Tensor; PyTorch may not be there when types are checked


class State(NamedTuple):
    """What a layer hands on from a call to the next: for callers a whole."""

    rows: Tensor  #: the rows that convolutions or token shifts look back to, [B, rows, channels], or None
    memory: Any  #: final states of the operator, float32


class Layer(nn.Module):  # type: ignore[misc]
    """Projections of x to queries, keys and values, a short causal convolution of them, an operator, and of each head's
    output a norm, a gate and a projection back: o = out(norm(attend(q, k, v)) * gate(x)).

    `size`: of x's rows; `heads`: of values; `key`, `value`: of one head's keys and values, by default what the paper
    has; `conv`: the length of the convolution's window, 0 for none. A subclass says what `attend` does and may change
    the attributes below. Parameters of gates are best kept in float32; projections may have any floating-point type.
    """

    conv = 0  #: the window, where the constructor is not told
    activation: str | None = None  #: of q, k and v, after the convolution
    norm: str | None = "rms"  #: of a head's output: "rms", "layer" or None
    gate: str | None = None  #: the activation of the output's gate, or None
    key_ratio, value_ratio = 1.0, 1.0  #: sizes of all heads' keys and values, of that of x

    def __init__(
        self, size: int, heads: int = 4, *, key: int | None = None, value: int | None = None, conv: int | None = None,
        key_heads: int | None = None, eps: float = 1e-5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size, self.heads, self.key_heads, self.eps = size, heads, key_heads or heads, eps
        if heads % self.key_heads:
            raise ValueError(f"heads: expected a multiple of key_heads = {self.key_heads}, got {heads}")
        self.key = self._per_head("key", key, self.key_ratio, size, heads)
        self.value = self._per_head("value", value, self.value_ratio, size, heads)
        self.window = self.conv if conv is None else conv
        self.q = nn.Linear(size, self.key_heads * self.key, bias=False)
        self.k = nn.Linear(size, self.key_heads * self.key, bias=False)
        self.v = nn.Linear(size, heads * self.value, bias=False)
        self.out = nn.Linear(heads * self.value, size, bias=False)
        if self.window:
            channels = 2 * self.key_heads * self.key + heads * self.value
            self.kernel = nn.Parameter(torch.empty(channels, self.window).uniform_(-1, 1) * self.window**-0.5)
        if self.gate:
            self.gated: Any = nn.Linear(size, heads * self.value, bias=False)
        if self.norm:
            self.weight = nn.Parameter(torch.ones(self.value))

    @staticmethod
    def _per_head(name: str, given: int | None, ratio: float, size: int, heads: int) -> int:
        if given is None and (size * ratio) % heads:
            raise ValueError(f"{name}: expected a size, as {size * ratio:g} is no multiple of {heads} heads")
        return int(size * ratio) // heads if given is None else given

    def forward(
        self, x: Tensor, state: State | None = None, *, return_state: bool = False, cu_seqlens: Tensor = None
    ) -> Any:
        """o [B, T, size] of x [B, T, size], in x's type; with `return_state` (o, what the next call takes as `state`).
        `cu_seqlens` int32 or int64 [N + 1] packs N sequences into a batch of 1. A sequence in two calls is the sequence
        in one, up to rounding; states have gradients."""
        rows, memory = state if state is not None else (None, None)
        q, k, v, more, rows = self.project(x, rows, cu_seqlens)
        v = v.unflatten(-1, (self.heads, self.value))
        q, k = (y.unflatten(-1, (self.key_heads, self.key)).to(v.dtype) for y in (q, k))
        o, memory = self.attend(q, k, v, more, initial_state=memory, output_final_state=return_state,
                                cu_seqlens=cu_seqlens)  # fmt: skip
        y = self.out(self.read(o, v, more).flatten(2))
        return (y, State(rows, memory)) if return_state else y

    def project(self, x: Tensor, rows: Tensor, cu_seqlens: Tensor) -> tuple[Any, ...]:
        """(queries, keys, values [B, T, …], what `attend` and `read` make their gates of, rows for the next call)."""
        mixed, later = torch.cat([self.q(x), self.k(x), self.v(x)], -1), None
        if self.window:
            padded, begins = looking_back(mixed, self.window - 1, rows, cu_seqlens)
            later = last_rows(padded, self.window - 1, cu_seqlens)
            mixed = functional.conv1d(padded.mT, self.kernel[:, None].to(padded.dtype), groups=padded.shape[-1]).mT
            mixed = mixed if begins is None else mixed[:, begins]
        if self.activation:
            mixed = getattr(functional, self.activation)(mixed)
        keys = self.key_heads * self.key
        return *mixed.split([keys, keys, mixed.shape[-1] - 2 * keys], -1), x, later

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        """(o [B, T, heads, value], final states or None) of q, k [B, T, key_heads, key], v [B, T, heads, value]; states
        are initial_state, output_final_state and cu_seqlens, as forge.ops takes them."""
        raise NotImplementedError(f"{type(self).__name__} has no attend")

    def read(self, o: Tensor, v: Tensor, x: Tensor) -> Tensor:
        """What is projected back: o [B, T, heads, value], normalised and gated."""
        o = self.normalised(o)
        return o * getattr(functional, self.gate)(self.gated(x)).view(o.shape) if self.gate else o

    def normalised(self, o: Tensor) -> Tensor:
        """Each head by itself."""
        if self.norm == "layer":
            return functional.layer_norm(o, (self.value,), self.weight.to(o.dtype), eps=self.eps)
        return functional.rms_norm(o, (self.value,), self.weight.to(o.dtype), self.eps) if self.norm else o

    def extra_repr(self) -> str:
        return f"{self.size}, heads={self.heads}, key={self.key}, value={self.value}, conv={self.window}"


def looking_back(x: Tensor, count: int, rows: Tensor, cu_seqlens: Tensor) -> tuple[Tensor, Tensor]:
    """x with `count` rows before each sequence, those of the call before or zeros, and where windows of count + 1 rows
    that end at the tokens begin (None: at every row)."""
    if cu_seqlens is None:
        return torch.cat([x.new_zeros(x.shape[0], count, x.shape[2]) if rows is None else rows.to(x.dtype), x], 1), None
    if rows is not None:
        raise ValueError("state: layers that look back to tokens take none for packed sequences")
    token = torch.arange(x.shape[1], device=x.device)
    begins = token + count * (torch.searchsorted(cu_seqlens.to(token.dtype), token, right=True) - 1)
    padded = x.new_zeros(1, x.shape[1] + count * (cu_seqlens.shape[0] - 1), x.shape[2])
    return padded.index_copy(1, begins + count, x), begins


def last_rows(padded: Tensor, count: int, cu_seqlens: Tensor) -> Tensor:
    """What the next call looks back to; of packed sequences None."""
    return padded[:, padded.shape[1] - count :] if cu_seqlens is None else None


def low_rank(size: int, rank: int, result: int, bias: bool = False) -> Any:
    return nn.Sequential(nn.Linear(size, rank, bias=False), nn.Linear(rank, result, bias=bias))


class Decays(nn.Module):  # type: ignore[misc]
    """Parameters of decays e^(-A softplus(x + bias)): A from 1 to 16, softplus(bias) from 0.001 to 0.1, as Mamba-2
    begins with."""

    def __init__(self, heads: int, biases: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        steps = torch.exp(torch.empty(biases).uniform_(math.log(0.001), math.log(0.1)))
        self.bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))


# ------------------------------------------------------------------------------------------ without or with fixed decay


class LinearAttention(Layer):
    """S = S + φ(k) vᵀ, o = Sᵀ φ(q) / zᵀ φ(q) with φ = elu + 1 (Katharopoulos et al. 2020, arXiv:2006.16236)."""

    norm = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
        return ops.chunk_linear_attn(q, k, v, normalize=True, **states)


class RetNet(Layer):
    """S = γ S + k vᵀ, with γ = 1 - 2^(-5-h) for head h, values of twice the size, a norm of each head and a swish gate
    (Sun et al. 2023, arXiv:2307.08621); without its rotation of queries and keys."""

    norm, gate, value_ratio = "layer", "silu", 2.0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        return ops.chunk_retention(q, k, v, **states)


# --------------------------------------------------------------------------------------------------- decays from tokens


class Mamba2(Layer):
    """S = e^(-A dt) S + dt k vᵀ, dt = softplus(dt(x) + bias) a number per head, one head of queries and keys for all
    (B and C of the paper, of the size `key`), o + D v, gate before norm (Dao and Gu 2024, arXiv:2405.21060)."""

    conv, activation, gate, value_ratio = 4, "silu", "silu", 2.0

    def __init__(self, size: int, heads: int = 4, *, key: int | None = 128, key_heads: int | None = 1, **more: Any):
        super().__init__(size, heads, key=key, key_heads=key_heads, **more)
        self.dt = nn.Linear(size, heads, bias=False)
        self.decays, self.D = Decays(heads, heads), nn.Parameter(torch.ones(heads))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        dt = functional.softplus(self.dt(x).float() + self.decays.bias.float())
        g = -self.decays.A_log.float().exp() * dt
        return ops.chunk_simple_gla(q, k, (v * dt[..., None]).to(v.dtype), g, scale=1.0, **states)

    def read(self, o: Tensor, v: Tensor, x: Tensor) -> Tensor:
        o = o + (self.D[:, None] * v).to(o.dtype)
        return self.normalised(o * functional.silu(self.gated(x)).view(o.shape))


class GLA(Layer):
    """S = diag(α) S + k vᵀ, α = σ(W₂ W₁ x + b)^(1/16) with W₁ of rank 16, keys of half the size, a norm of each head
    and a swish gate (Yang et al. 2023, arXiv:2312.06635, section 4.4)."""

    norm, gate, key_ratio = "layer", "silu", 0.5

    def __init__(self, size: int, heads: int = 4, *, rank: int = 16, temperature: float = 16.0, **more: Any) -> None:
        super().__init__(size, heads, **more)
        self.temperature = temperature
        self.alpha = low_rank(size, rank, self.heads * self.key, bias=True)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        g = functional.logsigmoid(self.alpha(x).float()) / self.temperature
        return ops.chunk_gla(q, k, v, g.unflatten(-1, (self.heads, self.key)), **states)


class HGRN2(Layer):
    """S = diag(f) S + (1 - f) vᵀ, f = γ + (1 - γ) σ(k(x)), queries by swish (Qin et al. 2024, arXiv:2404.07904).
    `lower_bound` is γ, which in the paper grows from layer to layer."""

    def __init__(self, size: int, heads: int = 4, *, lower_bound: float = 0.0, **more: Any) -> None:
        super().__init__(size, heads, **more)
        self.lower_bound = lower_bound

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        k = k.float()
        if self.lower_bound:
            g = torch.log(self.lower_bound + (1 - self.lower_bound) * torch.sigmoid(k))
        else:
            g = functional.logsigmoid(k)
        written = ((1 - self.lower_bound) * torch.sigmoid(-k)).to(v.dtype)  # 1 - f, without a difference
        return ops.chunk_gla(functional.silu(q), written, v, g, scale=1.0, **states)


class RWKV6(Layer):
    """o = (S + (u ⊙ k) vᵀ)ᵀ r, then S = diag(w) S + k vᵀ, w = e^(-e^(w₀ + W₂ tanh(W₁ x))); r, k, v, w and the gate are
    made of mixtures of x and the token before, mixed as the token says (Peng et al. 2024, arXiv:2404.05892)."""

    norm, gate = "layer", "silu"

    def __init__(self, size: int, heads: int = 4, *, rank: int = 32, **more: Any) -> None:
        super().__init__(size, heads, **{"conv": 0, **more})
        if self.window:
            raise ValueError("conv: expected 0, as RWKV-6 mixes a token with the one before")
        channels = self.heads * self.key
        self.first, self.mixture = nn.Parameter(torch.full((size,), 0.5)), nn.Parameter(torch.full((5, size), 0.5))
        self.narrow = nn.Linear(size, 5 * rank, bias=False)
        self.wide = nn.Parameter(torch.empty(5, rank, size).uniform_(-0.01, 0.01))
        self.decay = nn.Sequential(nn.Linear(size, 2 * rank, bias=False), nn.Tanh(), nn.Linear(2 * rank, channels))
        with torch.no_grad():  # decays from slow to fast along a head's channels
            self.decay[2].bias.copy_(torch.linspace(-6, -1, self.key).repeat(self.heads))
        self.u = nn.Parameter(torch.empty(self.heads, self.key).uniform_(-0.5, 0.5))

    def project(self, x: Tensor, rows: Tensor, cu_seqlens: Tensor) -> tuple[Any, ...]:
        padded, begins = looking_back(x, 1, rows, cu_seqlens)
        delta = (padded[:, :-1] if begins is None else padded[:, begins]) - x
        parts = torch.tanh(self.narrow(x + delta * self.first)).unflatten(-1, (5, -1))
        mixtures = self.mixture + torch.einsum("btnr,nrd->btnd", parts, self.wide)
        r, k, v, w, g = (x[..., None, :] + delta[..., None, :] * mixtures).unbind(-2)
        return self.q(r), self.k(k), self.v(v), (w, g), last_rows(padded, 1, cu_seqlens)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Any, **states: Any) -> tuple[Any, ...]:
        g = -torch.exp(self.decay(x[0]).float()).unflatten(-1, (self.heads, self.key))
        return ops.chunk_rwkv6(q, k, v, g, self.u, scale=1.0, **states)

    def read(self, o: Tensor, v: Tensor, x: Any) -> Tensor:
        return super().read(o, v, x[1])


# ------------------------------------------------------------------------------------------------------- the delta rule


class DeltaNet(Layer):
    """S = (I - β k kᵀ) S + β k vᵀ with queries and keys of unit length, β = σ(beta(x)) a number per head (Yang et al.
    2024, arXiv:2406.06484). `allow_negative`: β up to 2, eigenvalues from -1 to 1 (arXiv:2411.12537)."""

    conv, activation = 4, "silu"

    def __init__(self, size: int, heads: int = 4, *, allow_negative: bool = False, **more: Any) -> None:
        super().__init__(size, heads, **more)
        self.allow_negative = allow_negative
        self.beta = nn.Linear(size, heads, bias=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        beta = torch.sigmoid(self.beta(x)) * (2 if self.allow_negative else 1)
        return ops.chunk_delta_rule(q, k, v, beta, use_qk_l2norm_in_kernel=True, **states)


class GatedDeltaNet(DeltaNet):
    """S = e^g (I - β k kᵀ) S + β k vᵀ, g = -A softplus(decay(x) + bias) a number per head, keys of 3/4 of x's size and
    values of twice that, a swish gate (Yang et al. 2024, arXiv:2412.06464)."""

    gate, key_ratio, value_ratio = "silu", 0.75, 1.5

    def __init__(self, size: int, heads: int = 4, **more: Any) -> None:
        super().__init__(size, heads, **more)
        self.decay, self.decays = nn.Linear(size, heads, bias=False), Decays(heads, heads)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        return ops.chunk_gated_delta_rule(
            q, k, v, self.decay(x), self.beta(x), use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
            allow_neg_eigval=self.allow_negative, use_gate_in_kernel=True, A_log=self.decays.A_log,
            dt_bias=self.decays.bias, **states,
        )  # fmt: skip


class KDA(DeltaNet):
    """S = diag(e^g) S, then S += β k (v - Sᵀ k)ᵀ, g = -A softplus(W₂ W₁ x + bias) a number per key, A one per head, and
    a gate σ(W₂ W₁ x), both of the rank of a head's values (Kimi Team 2025, arXiv:2510.26692)."""

    gate = "sigmoid"

    def __init__(self, size: int, heads: int = 4, **more: Any) -> None:
        super().__init__(size, heads, **more)
        self.gated = low_rank(size, self.value, heads * self.value, bias=True)
        self.decay = low_rank(size, self.value, heads * self.key)
        self.decays = Decays(heads, heads * self.key)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        return ops.chunk_kda(
            q, k, v, self.decay(x).unflatten(-1, (self.heads, self.key)), self.beta(x), use_qk_l2norm_in_kernel=True,
            use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=self.allow_negative,
            A_log=self.decays.A_log, dt_bias=self.decays.bias, **states,
        )  # fmt: skip


for _name in __all__:
    globals()[_name].__module__ = "forge.nn"  # where users find them, and pickles
