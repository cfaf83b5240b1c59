"""Layers of the objectives in variants/objectives/, for bench/quality/quality.py: DeltaNet in all but what is attended
by. None has a decay, so that what differs is the objective."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import forge


class Objective(forge.nn.DeltaNet):
    """A layer whose operator is a variant of the zoo; queries and keys have unit length."""

    variant = ""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        q, k = (functional.normalize(y, dim=-1) for y in (q, k))
        return getattr(forge.variants, self.variant)(
            q=q, k=k, v=v, scale=self.key**-0.5, **self.more(x), output_final_state=states["output_final_state"]
        )

    def more(self, x: Tensor) -> dict[str, Tensor]:
        """The variant's other inputs."""
        return {"beta": torch.sigmoid(self.beta(x))}

    def open(self, x: Tensor) -> Tensor:
        """Log decays of 0."""
        return x.new_zeros(*x.shape[:2], self.heads, dtype=torch.float32)


class Preconditioned(Objective):
    variant = "preconditioned_delta"

    def more(self, x: Tensor) -> dict[str, Tensor]:
        return {**super().more(x), "g": self.open(x)}


class PrecisionWeighted(Objective):
    variant = "precision_weighted"

    def more(self, x: Tensor) -> dict[str, Tensor]:
        return {"p": functional.softplus(self.beta(x)).float(), "g": self.open(x)}


class TemporalDifference(Objective):
    variant = "temporal_difference"

    def __init__(self, size: int, heads: int = 4, **more: Any) -> None:
        super().__init__(size, heads, **more)
        self.discount = nn.Parameter(torch.full((heads,), -2.0))  # γ = 0.12 to begin with

    def more(self, x: Tensor) -> dict[str, Tensor]:
        return {**super().more(x), "gamma": torch.sigmoid(self.discount)}


class Contrastive(Objective):
    variant = "contrastive"


class Spectral(Objective):
    variant = "spectral"

    def more(self, x: Tensor) -> dict[str, Tensor]:
        return {"g": self.open(x)}


class Momentum(Objective):
    variant = "momentum_delta"

    def __init__(self, size: int, heads: int = 4, **more: Any) -> None:
        super().__init__(size, heads, **more)
        self.slow = nn.Linear(size, heads)

    def more(self, x: Tensor) -> dict[str, Tensor]:
        return {**super().more(x), "g": self.open(x), "m": functional.logsigmoid(self.slow(x).float())}


LAYERS = {made.__name__: made for made in (Preconditioned, PrecisionWeighted, TemporalDifference, Contrastive, Spectral,
                                           Momentum)}  # fmt: skip
