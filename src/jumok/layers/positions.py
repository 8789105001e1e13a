"""Position encodings: sinusoids added or concatenated, learned vectors, rotations.

Every module takes `start`, the position of the first token: one number, one for each sequence [batch], or the position
of every token [batch, time]. A decoder that adds one token at a time passes the number of earlier tokens.
"""

from numbers import Real

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention.checks import as_integer, check_sizes
from jumok.errors import ArgumentError

Start = int | Int[Tensor, " batch"] | Int[Tensor, "batch time"]


def sinusoids(
    positions: Int[Tensor, "*shape"], width: int, *, base: float = 10000.0, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*shape {width}"]:
    """PE[p, 2i] = sin(p / base^(2i / width)),  PE[p, 2i+1] = cos(p / base^(2i / width)); Vaswani et al. (2017).

    An odd width ends in a sine without its cosine.
    """
    (width,) = check_sizes(width=width, least=0)
    angle = _angles(positions, width, base)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :width].to(dtype)


class AddedPositions(nn.Module):
    """x + PE: sinusoids added to the token vectors, for any length (Vaswani et al. 2017)."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        (self.width,) = check_sizes(width=width)

    def forward(self, x: Float[Tensor, "*lead time width"], start: Start = 0) -> Float[Tensor, "*lead time width"]:
        """Add the sinusoids of each token's position."""
        _check_width(x, self.width)
        return x + sinusoids(_positions(x, start), self.width, dtype=x.dtype)


class ConcatenatedPositions(nn.Module):
    """[x; PE]: sinusoids of `position_width` appended to the token vectors, for a total of `width`."""

    def __init__(self, *, width: int, position_width: int) -> None:
        super().__init__()
        width, position_width = check_sizes(width=width, position_width=position_width)
        if position_width >= width:
            raise ArgumentError(
                f"position_width = {position_width} must be 1 to width - 1 = {width - 1}, to leave room for the token"
            )
        self.position_width, self.token_width = position_width, width - position_width

    def forward(
        self, x: Float[Tensor, "*lead time token_width"], start: Start = 0
    ) -> Float[Tensor, "*lead time width"]:
        """Append the sinusoids of each token's position."""
        _check_width(x, self.token_width)
        table = sinusoids(_positions(x, start), self.position_width, dtype=x.dtype)
        return torch.cat([x, table.expand(*x.shape[:-1], -1)], dim=-1)


class LearnedPositions(nn.Module):
    """x + P[position]: a learned vector for each of `longest` positions (Gehring et al. 2017)."""

    def __init__(self, *, width: int, longest: int) -> None:
        super().__init__()
        longest, width = check_sizes(longest=longest, width=width)
        self.table = nn.Parameter(nn.init.normal_(torch.empty(longest, width), std=0.02))

    def forward(self, x: Float[Tensor, "*lead time width"], start: Start = 0) -> Float[Tensor, "*lead time width"]:
        """Add the vector of each token's position; positions in a tensor are checked by PyTorch's indexing alone."""
        longest, width = self.table.shape
        _check_width(x, width)
        if not isinstance(start, Tensor) and x.shape[-2]:
            _check_longest(start, start + x.shape[-2] - 1, longest)
        return x + self.table[_positions(x, start)].to(x.dtype)


class RotaryPositions(nn.Module):
    """Rotate each pair (x[2i], x[2i+1]) by the angle p / base^(2i / head_dim) (Su et al. 2021).

    Applied to queries and keys, it makes their dot product depend on relative positions only.
    If `head_dim` is odd, the last number is left unchanged.
    """

    def __init__(self, *, head_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        (self.head_dim,) = check_sizes(head_dim=head_dim)
        if not isinstance(base, Real) or not 0 < base < float("inf"):
            raise ArgumentError(f"base = {base!r} must be a finite number greater than 0")
        self.base: float = float(base)

    def forward(
        self, x: Float[Tensor, "*lead time head_dim"], start: Start = 0
    ) -> Float[Tensor, "*lead time head_dim"]:
        """Rotate every query, or every key, by its position."""
        _check_width(x, self.head_dim)
        paired = self.head_dim - self.head_dim % 2
        angle = _angles(_positions(x, start), paired, self.base)
        precision = torch.promote_types(x.dtype, torch.float32)  # rounds to half precision only once, at the end
        cos, sin = angle.cos().to(precision), angle.sin().to(precision)
        even, odd = x[..., 0:paired:2], x[..., 1:paired:2]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
        return torch.cat([turned.to(x.dtype), x[..., paired:]], dim=-1)


def _angles(positions: Tensor, width: int, base: float) -> Tensor:
    # In float64, because float32 is wrong by whole degrees beyond about 100,000 positions. Computed each time, because
    # .half() would round a buffer, and a buffer would have a maximum length.
    precision = torch.float32 if positions.device.type == "mps" else torch.float64
    exponent = torch.arange(0, width, 2, device=positions.device, dtype=precision) / max(width, 1)
    return positions[..., None] * base**-exponent


def _positions(x: Tensor, start: Start) -> Tensor:
    """The positions of the tokens, in a shape that broadcasts to x without its last axis."""
    time = x.shape[-2]
    steps = torch.arange(time, device=x.device)
    if not isinstance(start, Tensor):
        return as_integer("start", start) + steps
    batch = len(x) if x.ndim > 2 else None
    if start.is_floating_point() or list(start.shape) not in ([batch], [batch, time]):
        wanted = "an int" if batch is None else f"an int, [{batch}] (batch) or [{batch}, {time}] (batch, time)"
        raise ArgumentError(f"start is {list(start.shape)} of {start.dtype} for x {list(x.shape)}; it must be {wanted}")
    positions = start.to(x.device)[:, None] + steps if start.ndim == 1 else start.to(x.device)
    return positions.view(len(x), *[1] * (x.ndim - 3), time)


def _check_longest(first: int, last: int, longest: int) -> None:
    if first < 0 or last >= longest:
        raise ArgumentError(
            f"the tokens have positions {first} to {last}, but longest = {longest} positions (0 to {longest - 1}) "
            "were learned; shorten the input or use sinusoidal or rotary positions"
        )


def _check_width(x: Tensor, width: int) -> None:
    # PyTorch would broadcast a width of 1.
    if x.ndim < 2 or x.shape[-1] != width:
        raise ArgumentError(f"x is {list(x.shape)}; it must be [..., time, {width}]")
