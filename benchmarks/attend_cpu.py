"""Time of a call of `attend` on a CPU, compared with PyTorch's scaled_dot_product_attention.

    python -m benchmarks.attend_cpu

Float32 on one thread, forward without gradients, and forward and backward: without a mask, causal, with lengths between
1 and all of the keys, causal with lengths, with a window of 3 keys on each side, and with a random boolean tensor.
jumok creates its mask in the call, except for the tensor. PyTorch gets `is_causal`, or a dense mask that was created
before the call or in it. Then packed sequences, which PyTorch gets as a batch or with a dense mask, and the three sums
by which `attend` looks for NaN, alone. The systems take turns, and a time is the minimum CPU time of a call over many
rounds, which other programs on the machine affect little. Writes attend_cpu.json.
"""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.results import Row, cpu, write
from jumok.attention import attend, causal, from_lengths, packed, whole, window
from jumok.attention.nonfinite import all_finite

SHAPES = ((2, 4, 16, 32), (8, 8, 32, 64), (8, 8, 128, 64), (8, 8, 512, 64))
PACKED = (20, 4, 100, 64)
"""Sequences, heads, positions of a sequence, and width."""
TURNS = 40
SECONDS = 0.02
"""Of processor time, for a system in a turn."""

Call = Callable[[], object]
Mix = Callable[[Tensor, Tensor, Tensor], Tensor]


def inputs(shape: tuple[int, ...]) -> list[Tensor]:
    draws = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=draws) for _ in range(3)]


def mixes(shape: tuple[int, ...]) -> dict[str, dict[str, Mix]]:
    """By mask and system."""
    draws = torch.Generator().manual_seed(2)
    batch, _, keys, _ = shape
    lengths = torch.randint(1, keys + 1, (batch,), generator=draws)
    shown = torch.rand(batch, 1, keys, keys, generator=draws) > 0.3
    shown[..., 0] = True
    positions, theirs, made = torch.arange(keys), F.scaled_dot_product_attention, "PyTorch, mask made in the call"

    def padding() -> Tensor:
        return (torch.arange(keys) < lengths[:, None])[:, None, None]

    def both() -> Tensor:
        return padding() & torch.ones(keys, keys, dtype=torch.bool).tril()

    padded, decoder, near = padding(), both(), (positions - positions[:, None]).abs() <= 3
    return {
        "no mask": {"jumok": lambda q, k, v: attend(q, k, v).values, "PyTorch": theirs},
        "causal": {
            "jumok": lambda q, k, v: attend(q, k, v, visible=causal()).values,
            "PyTorch": lambda q, k, v: theirs(q, k, v, is_causal=True),
        },
        "lengths": {
            "jumok": lambda q, k, v: attend(q, k, v, visible=from_lengths(lengths)).values,
            "PyTorch": lambda q, k, v: theirs(q, k, v, attn_mask=padded),
            made: lambda q, k, v: theirs(q, k, v, attn_mask=padding()),
        },
        "causal and lengths": {
            "jumok": lambda q, k, v: attend(q, k, v, visible=causal() & from_lengths(lengths)).values,
            "PyTorch": lambda q, k, v: theirs(q, k, v, attn_mask=decoder),
            made: lambda q, k, v: theirs(q, k, v, attn_mask=both()),
        },
        "window": {
            "jumok": lambda q, k, v: attend(q, k, v, visible=window(3)).values,
            "PyTorch": lambda q, k, v: theirs(q, k, v, attn_mask=near),
        },
        "boolean tensor": {
            "jumok": lambda q, k, v: attend(q, k, v, visible=shown).values,
            "PyTorch": lambda q, k, v: theirs(q, k, v, attn_mask=shown),
        },
    }


def packed_mixes() -> dict[str, tuple[Mix, tuple[int, ...]]]:
    """By system, with the shape of its inputs."""
    sequences, heads, time, width = PACKED
    lengths, total = [time] * sequences, sequences * time
    dense, theirs = whole(packed(lengths), queries=total, keys=total), F.scaled_dot_product_attention
    return {
        "jumok": (lambda q, k, v: attend(q, k, v, visible=packed(lengths)).values, (1, heads, total, width)),
        "PyTorch": (lambda q, k, v: theirs(q, k, v, attn_mask=dense), (1, heads, total, width)),
        "PyTorch, as a batch": (theirs, PACKED),
    }


def forward(mix: Mix, shape: tuple[int, ...]) -> Call:
    given = inputs(shape)
    return lambda: mix(*given)


def training(mix: Mix, shape: tuple[int, ...]) -> Call:
    given, upstream = [tensor.requires_grad_() for tensor in inputs(shape)], torch.ones(shape)
    return lambda: torch.autograd.grad(mix(*given), given, upstream)


def sums(shape: tuple[int, ...]) -> Call:
    """The passes over queries, keys and values of the output."""
    query, key, values = inputs(shape)
    return lambda: all_finite(query, key) and all_finite(values)


def measurements() -> dict[str, dict[str, Call]]:
    """By id and system."""
    calls = {}
    for name, passes in (("attend-cpu", forward), ("attend-cpu-train", training)):
        for shape in SHAPES:
            for mask, systems in mixes(shape).items():
                timed = {system: mix for system, mix in systems.items() if passes is forward or "made" not in system}
                calls[f"{name}/{list(shape)}, {mask}"] = {s: passes(mix, shape) for s, mix in timed.items()}
        line = "forward" if passes is forward else "forward and backward"
        calls[f"attend-cpu-packed/{line}"] = {
            system: passes(mix, shape) for system, (mix, shape) in packed_mixes().items()
        }
    return calls | {f"attend-cpu-sums/{list(shape)}": {"jumok": sums(shape)} for shape in SHAPES}


def microseconds(call: Call, times: int) -> float:
    began = time.process_time_ns()
    for _ in range(times):
        call()
    return (time.process_time_ns() - began) / times / 1000


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    conditions = f"float32, one thread; least processor time of {TURNS} turns"
    for name, systems in measurements().items():
        for call in systems.values():
            call()
        times = {system: max(1, int(SECONDS * 1e6 / microseconds(call, 3))) for system, call in systems.items()}
        turns: dict[str, list[float]] = {system: [] for system in systems}
        for _ in range(TURNS):
            for system, call in systems.items():
                turns[system].append(microseconds(call, times[system]))
        for system, taken in turns.items():
            rows.append(Row(name, system, round(min(taken), 1), "µs", conditions))
            print(rows[-1], flush=True)
    print(write("attend_cpu", rows, device=cpu()))


if __name__ == "__main__":
    main()
