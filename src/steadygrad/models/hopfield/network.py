"""The continuous Hopfield network of the paper, with clamped observed neurons."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from steadygrad.method import check_count


class Hopfield(nn.Module):
    """h ← W φ(b h) on hidden and output neurons, with W symmetric and of zero diagonal, and observed neurons clamped to x.

    φ is the sigmoid and b the slope. Observed neurons do not move, so their part W_fo φ(b x) of the input to the free ones
    is computed once: F(h) = S φ(b h) + c with S = W_ff and c = W_fo φ(b x). W_oo plays no part and is left out. The free
    neurons are the hidden ones, then as many outputs as there are pixels. Liao et al. 2018, section 5.1.

    W is drawn as A + Aᵀ with A ~ N(0, scale²). `factor` multiplies W: the paper's text, whose leak is h/2, has 2, its code 1.
    """

    def __init__(
        self, pixels: int, hidden: int, slope: float = 0.5, scale: float = 1e-3, seed: int = 0, factor: float = 1.0
    ) -> None:
        super().__init__()
        for name, count in {"pixels": pixels, "hidden": hidden}.items():
            check_count(name, count, least=1)
        if not slope > 0:
            raise ValueError(f"slope must be positive; got {slope}.")
        self.pixels, self.hidden, self.slope, self.factor = pixels, hidden, slope, factor
        generator = torch.Generator().manual_seed(seed)
        A = scale * torch.randn(2 * pixels + hidden, 2 * pixels + hidden, generator=generator)
        W = (A + A.T).fill_diagonal_(0)
        self.inward = nn.Parameter(W[pixels:, :pixels].clone())
        """W_fo: (free, observed)."""
        self.coupling = nn.Parameter(W[pixels:, pixels:].clone())
        """S = W_ff: (free, free), symmetric with a zero diagonal, since its gradient is made so."""
        self.coupling.register_hook(symmetric)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.coupling.register_hook(symmetric)  # a copy of a tensor has none of its hooks

    @property
    def free(self) -> int:
        return self.hidden + self.pixels

    def clamped(self, x: Tensor) -> Tensor:
        """c = W_fo φ(b x): what the observed neurons send, the same at every step."""
        sent = torch.sigmoid(self.slope * x) @ self.inward.T
        return sent if self.factor == 1 else self.factor * sent

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        """F: one update of the free neurons, all images in one matrix product. J v = S (b φ'(bh) ⊙ v)."""
        return torch.addmm(c, torch.sigmoid(self.slope * h), self.coupling, alpha=self.factor)

    def gain(self, h: Tensor) -> Tensor:
        """b φ'(bh) times the factor of W, the diagonal of D in J = S D."""
        x = torch.sigmoid(self.slope * h)
        return self.factor * self.slope * x * (1 - x)

    def start(self, x: Tensor) -> Tensor:
        """h₀: free neurons at zero."""
        return x.new_zeros(len(x), self.free)

    def output(self, h: Tensor) -> Tensor:
        """The states of the output neurons."""
        return h[:, self.hidden :]

    def energy(self, h: Tensor, c: Tensor) -> Tensor:
        """E = Σᵢ ∫₀^{xᵢ} (1/b) φ⁻¹ − ½ xᵀ S x − cᵀ x of each image, with x = φ(b h): the Lyapunov function of the network.

        Constants of the clamped neurons are left out. It falls under dh/dt = F(h) − h. Under the update h ← F(h), a step of
        length one, it falls by at least (2/b)‖Δx‖² + ½ ΔxᵀS Δx, hence surely if λ_min(S) > −4/b. One evaluation of F.
        """
        image, u = self(h, c).detach().double(), self.slope * h.double()
        x = torch.sigmoid(u)
        # ∫ φ⁻¹ = x log x + (1−x) log(1−x), and log φ(u) is exact where x is 0 or 1 to rounding; S x = F(h) − c.
        entropy = x * nn.functional.logsigmoid(u) + (1 - x) * nn.functional.logsigmoid(-u)
        return (entropy / self.slope - 0.5 * x * (image + c.double())).sum(dim=1)


def symmetric(G: Tensor) -> Tensor:
    """The gradient with respect to A where S = A + Aᵀ with a zero diagonal: G + Gᵀ without its diagonal."""
    return (G + G.T.contiguous()).fill_diagonal_(0)  # the copy makes both sides contiguous: half the time
