"""Kernels K(‖q − k‖ / bandwidth) of Nadaraya-Watson regression as scores log K.

exp(log K(u)) / Σ exp(log K(u)) = K(u) / Σ K(u), so the softmax is the kernel sum; and far from all data the Gaussian
tends to its limit instead of 0 / 0.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.scores import Score
from jumok.errors import ArgumentError

_FROM_DIFFERENCES = "donot_use_mm_for_euclid_dist"
Bandwidth = float | Float[Tensor, "*#lead 1 1"]

FEW_DIMENSIONS = 16
"""Up to this many dimensions, squared distances are summed one dimension at a time; above, PyTorch is faster."""


@dataclass(frozen=True, eq=False)
class KernelScore(Score):
    """log K(u) with u = ‖q − k‖ / bandwidth; a bandwidth tensor can be learned, or differ between heads."""

    bandwidth: float | Float[Tensor, "*#lead"] = 1.0
    parameter_axes: ClassVar[dict[str, int]] = {"bandwidth": 0}

    def __post_init__(self) -> None:
        bandwidths = [self.bandwidth]
        if isinstance(self.bandwidth, Tensor):
            readable = tracing.is_readable(self.bandwidth) and self.bandwidth.numel()
            bandwidths = [float(end) for end in self.bandwidth.detach().aminmax()] if readable else []
        for bandwidth in bandwidths:
            if not (isinstance(bandwidth, Real) and 0 < bandwidth < float("inf")):
                raise ArgumentError(f"bandwidth must be a finite number greater than 0, but it is {bandwidth!r}")

    def __call__(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
    ) -> Float[Tensor, "*lead query key"]:
        bandwidth = self.bandwidth[..., None, None] if isinstance(self.bandwidth, Tensor) else self.bandwidth
        # Half precision would move keys across the edge of a kernel.
        wide = torch.promote_types(query.dtype, torch.float32)
        unit = unit_of(bandwidth, wide)
        return self.log_kernel(query.to(wide) / unit, key.to(wide) / unit, bandwidth / unit).to(query.dtype)

    @abstractmethod
    def log_kernel(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"], bandwidth: Bandwidth
    ) -> Float[Tensor, "*lead query key"]:
        """log K(u), -inf where K is 0; the squares of all arguments are finite."""


class Gaussian(KernelScore):
    """K(u) = exp(−u² / 2)."""

    def log_kernel(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"], bandwidth: Bandwidth
    ) -> Float[Tensor, "*lead query key"]:
        return -0.5 * (distances(query, key) / bandwidth) ** 2


class Boxcar(KernelScore):
    """K(u) = 1 for u ≤ 1, else 0.

    On a grid many points lie exactly at the edge. All implementations, also on a GPU, compare ‖q − k‖² ≤ h² with the
    squares of `rounded_squares`, so they agree on which points are inside.
    """

    def log_kernel(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"], bandwidth: Bandwidth
    ) -> Float[Tensor, "*lead query key"]:
        squared = rounded_squares(query.detach(), key.detach())
        outside = squared > bandwidth**2
        return torch.zeros_like(squared).masked_fill(outside, -torch.inf).masked_fill(squared.isnan(), torch.nan)


class Epanechnikov(KernelScore):
    """K(u) = 1 − u² for u < 1, else 0."""

    def log_kernel(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"], bandwidth: Bandwidth
    ) -> Float[Tensor, "*lead query key"]:
        return _log_inside(1 - (distances(query, key) / bandwidth) ** 2)


class Triangular(KernelScore):
    """K(u) = 1 − u for u < 1, else 0."""

    def log_kernel(
        self, query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"], bandwidth: Bandwidth
    ) -> Float[Tensor, "*lead query key"]:
        return _log_inside(1 - distances(query, key) / bandwidth)


def _log_inside(kernel: Tensor) -> Tensor:
    # Outside the support log K and its gradient would be NaN, so it is the constant -inf there. NaN stays NaN.
    return F.threshold(kernel, 0, 1).log().masked_fill(kernel <= 0, -torch.inf)


def distances(
    query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
) -> Float[Tensor, "*lead query key"]:
    """‖q − k‖ of every query with every key, from differences: ‖q‖² + ‖k‖² − 2 q·k would round small ones away."""
    if query.shape[-1] == 1:  # |q − k|, at a tenth of the cost
        return (query - key.mT).abs()
    needs_gradient = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    if not needs_gradient or torch.compiler.is_compiling() or tracing.in_transform():
        return torch.cdist(query, key, compute_mode=_FROM_DIFFERENCES)
    result: Tensor = _Euclidean.apply(query, key)  # type: ignore[no-untyped-call]
    return result


class _Euclidean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor) -> Tensor:
        distances = torch.cdist(query, key, compute_mode=_FROM_DIFFERENCES)
        ctx.save_for_backward(query, key, distances)
        return distances

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor]:
        query, key, distances = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second gradient autograd has to follow
            slope = (upstream / distances.masked_fill(distances == 0, torch.inf))[..., None]
            towards_query = slope * (query[..., :, None, :] - key[..., None, :, :])
            d_query, d_key = towards_query.sum(-2), -towards_query.sum(-3)
        else:
            d_query = torch.ops.aten._cdist_backward(upstream.contiguous(), query, key, 2.0, distances)
            d_key = torch.ops.aten._cdist_backward(upstream.mT.contiguous(), key, query, 2.0, distances.mT.contiguous())
        return d_query.sum_to_size(query.shape), d_key.sum_to_size(key.shape)


def rounded_squares(
    query: Float[Tensor, "*#lead query dim"], key: Float[Tensor, "*#lead key dim"]
) -> Float[Tensor, "*lead query key"]:
    """‖q − k‖², identical to the last bit on every device: each square is rounded before it is added.

    Fused multiply-adds are faster, but the compiler chooses which of the products they leave unrounded.
    """
    if not 0 < query.shape[-1] <= FEW_DIMENSIONS:
        return distances(query, key).square()
    total = query[..., :1] - key[..., None, :, 0]
    total.mul_(total)
    for d in range(1, query.shape[-1]):
        apart = query[..., d, None] - key[..., None, :, d]
        total.add_(apart.mul_(apart))
    return total


def unit_of(bandwidth: float | Float[Tensor, "*axes"], dtype: torch.dtype) -> float | Float[Tensor, "*axes"]:
    """A power of two near a bandwidth that is so large or small that its square overflows or underflows; otherwise 1.

    Points and bandwidth are divided by it, which is exact.
    """
    most = math.frexp(torch.finfo(dtype).max)[1]
    usual, least = most // 3, -most // 2  # not below: points could become infinite
    if isinstance(bandwidth, Tensor):
        exponents = torch.frexp(bandwidth.detach().to(dtype)).exponent - 1
        exponents = torch.where(exponents.abs() > usual, exponents.clamp(min=least), 0)
        return torch.ldexp(torch.ones_like(exponents, dtype=dtype), exponents)
    exponent = math.frexp(bandwidth)[1] - 1
    return 2.0 ** max(exponent, least) if abs(exponent) > usual else 1.0


def gaussian(bandwidth: float | Float[Tensor, "*#lead"] = 1.0) -> Gaussian:
    """K(u) = exp(−u² / 2), u = ‖q − k‖ / bandwidth."""
    return Gaussian(bandwidth)


def boxcar(bandwidth: float | Float[Tensor, "*#lead"] = 1.0) -> Boxcar:
    """K(u) = 1 within the bandwidth, else 0."""
    return Boxcar(bandwidth)


def epanechnikov(bandwidth: float | Float[Tensor, "*#lead"] = 1.0) -> Epanechnikov:
    """K(u) = 1 − u² within the bandwidth, else 0."""
    return Epanechnikov(bandwidth)


def triangular(bandwidth: float | Float[Tensor, "*#lead"] = 1.0) -> Triangular:
    """K(u) = 1 − u within the bandwidth, else 0."""
    return Triangular(bandwidth)
