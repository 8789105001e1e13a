"""Where a token stands: sinusoids added or concatenated, learned vectors, rotations.

Every module takes `start`, the position of the first token given: one number, one for each sequence of the batch, or
the position of every single token [batch, time]. A decoder that adds one token at a time passes how many came before.
"""

from numbers import Real

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention.arguments import check_sizes, whole_number
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
    """x + PE: the sinusoids are added to the tokens' vectors, as in Vaswani et al. (2017); any length works."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        (self.width,) = check_sizes(width=width)

    def forward(self, x: Float[Tensor, "*lead time width"], start: Start = 0) -> Float[Tensor, "*lead time width"]:
        """Add to each token the sinusoids of its position."""
        _check_width(x, self.width)
        return x + sinusoids(_positions(x, start), self.width, dtype=x.dtype)


class ConcatenatedPositions(nn.Module):
    """[x; PE]: the last `position_width` of the `width` numbers out are sinusoids, the others the token's own."""

    def __init__(self, *, width: int, position_width: int) -> None:
        super().__init__()
        width, position_width = check_sizes(width=width, position_width=position_width)
        if position_width >= width:
            raise ArgumentError(
                f"position_width = {position_width} must leave room for the token: wanted 1 to width - 1 = {width - 1}"
            )
        self.position_width, self.token_width = position_width, width - position_width

    def forward(
        self, x: Float[Tensor, "*lead time token_width"], start: Start = 0
    ) -> Float[Tensor, "*lead time width"]:
        """Append to each token the sinusoids of its position."""
        _check_width(x, self.token_width)
        table = sinusoids(_positions(x, start), self.position_width, dtype=x.dtype)
        return torch.cat([x, table.expand(*x.shape[:-1], -1)], dim=-1)


class LearnedPositions(nn.Module):
    """x + P[position]: one learned vector for each of the `longest` positions there can be (Gehring et al., 2017)."""

    def __init__(self, *, width: int, longest: int) -> None:
        super().__init__()
        longest, width = check_sizes(longest=longest, width=width)
        self.table = nn.Parameter(nn.init.normal_(torch.empty(longest, width), std=0.02))

    def forward(self, x: Float[Tensor, "*lead time width"], start: Start = 0) -> Float[Tensor, "*lead time width"]:
        """Add to each token the vector of its position."""
        longest, width = self.table.shape
        _check_width(x, width)
        positions = _positions(x, start)
        _check_longest(positions, start, longest)
        return x + self.table[positions].to(x.dtype)


class RotaryPositions(nn.Module):
    """Turn each pair (x[2i], x[2i+1]) by the angle p / base^(2i / head_dim); Su et al. (2021).

    Apply it to queries and to keys: their dot product then depends on how far apart they stand, not on where.
    An odd `head_dim` leaves its last number as it is.
    """

    def __init__(self, *, head_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        (self.head_dim,) = check_sizes(head_dim=head_dim)
        if not isinstance(base, Real) or not 0 < base < float("inf"):
            raise ArgumentError(f"base = {base!r}; wanted a finite number greater than 0")
        self.base: float = float(base)

    def forward(
        self, x: Float[Tensor, "*lead time head_dim"], start: Start = 0
    ) -> Float[Tensor, "*lead time head_dim"]:
        """Turn every query, or every key, to its position."""
        _check_width(x, self.head_dim)
        paired = self.head_dim - self.head_dim % 2
        angle = _angles(_positions(x, start), paired, self.base)
        precision = torch.promote_types(x.dtype, torch.float32)  # half precision is rounded to once, at the end
        cos, sin = angle.cos().to(precision), angle.sin().to(precision)
        even, odd = x[..., 0:paired:2], x[..., 1:paired:2]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
        return torch.cat([turned.to(x.dtype), x[..., paired:]], dim=-1)


def _angles(positions: Tensor, width: int, base: float) -> Tensor:
    # In float64 because float32 is off by whole degrees after some 100,000 positions. Computed anew each time rather
    # than kept as a buffer, which .half() would round and which would end at some length.
    precision = torch.float32 if positions.device.type == "mps" else torch.float64
    exponent = torch.arange(0, width, 2, device=positions.device, dtype=precision) / max(width, 1)
    return positions[..., None] * base**-exponent


def _positions(x: Tensor, start: Start) -> Tensor:
    """Return the positions of x's tokens, in a shape that broadcasts to x without its last axis."""
    time = x.shape[-2]
    steps = torch.arange(time, device=x.device)
    if not isinstance(start, Tensor):
        return whole_number("start", start) + steps
    batch = len(x) if x.ndim > 2 else None
    if start.is_floating_point() or list(start.shape) not in ([batch], [batch, time]):
        wanted = "an int" if batch is None else f"an int, [{batch}] (batch) or [{batch}, {time}] (batch, time)"
        raise ArgumentError(f"start is {list(start.shape)} of {start.dtype} for x {list(x.shape)}; wanted {wanted}")
    positions = start.to(x.device)[:, None] + steps if start.ndim == 1 else start.to(x.device)
    return positions.view(len(x), *[1] * (x.ndim - 3), time)


def _check_longest(positions: Tensor, start: Start, longest: int) -> None:
    if positions.numel() == 0:
        return
    if not isinstance(start, Tensor):
        first, last = start, start + len(positions) - 1
    elif positions.device.type == "cpu" and not torch.compiler.is_compiling():
        first, last = (int(bound) for bound in positions.aminmax())
    else:  # looking would make the GPU wait
        return
    if first < 0 or last >= longest:
        raise ArgumentError(
            f"the tokens stand at positions {first} to {last}, but longest = {longest} positions (0 to {longest - 1}) "
            "were learned; shorten the input or use sinusoidal or rotary positions"
        )


def _check_width(x: Tensor, width: int) -> None:
    if x.ndim < 2 or x.shape[-1] != width:
        raise ArgumentError(f"x is {list(x.shape)}; wanted [..., time, {width}]")
