"""Time of a call of `attend` on a CPU, compared with PyTorch's scaled_dot_product_attention.

    python -m benchmarks.attend_cpu

Forward in float32 on one thread, without gradients: without a mask, causal, and with lengths between 1 and all of the
keys. jumok creates its mask in the call. PyTorch gets `is_causal`, or a dense mask that was created before the call or
in it. The systems take turns, and a time is the minimum CPU time of a call over many rounds, which other programs on
the machine affect little. Writes attend_cpu.json.
"""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks.results import Row, cpu, write
from jumok.attention import attend, causal, from_lengths

SHAPES = ((2, 4, 16, 32), (8, 8, 32, 64), (8, 8, 128, 64), (8, 8, 512, 64))
TURNS = 60
SECONDS = 0.02
"""Of processor time, for a system in a turn."""

Call = Callable[[], object]


def calls(shape: tuple[int, ...]) -> dict[str, dict[str, Call]]:
    """By mask and system."""
    draws = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(shape, generator=draws) for _ in range(3))
    batch, _, keys, _ = shape
    lengths = torch.randint(1, keys + 1, (batch,), generator=draws)

    def dense() -> torch.Tensor:
        return (torch.arange(keys) < lengths[:, None])[:, None, None]

    made, theirs = dense(), F.scaled_dot_product_attention
    return {
        "no mask": {
            "jumok": lambda: attend(query, key, value),
            "PyTorch": lambda: theirs(query, key, value),
        },
        "causal": {
            "jumok": lambda: attend(query, key, value, visible=causal()),
            "PyTorch": lambda: theirs(query, key, value, is_causal=True),
        },
        "lengths": {
            "jumok": lambda: attend(query, key, value, visible=from_lengths(lengths)),
            "PyTorch": lambda: theirs(query, key, value, attn_mask=made),
            "PyTorch, mask made in the call": lambda: theirs(query, key, value, attn_mask=dense()),
        },
    }


def microseconds(call: Call, times: int) -> float:
    began = time.process_time_ns()
    for _ in range(times):
        call()
    return (time.process_time_ns() - began) / times / 1000


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for shape in SHAPES:
        for mask, systems in calls(shape).items():
            for call in systems.values():
                call()
            times = {system: max(1, int(SECONDS * 1e6 / microseconds(call, 3))) for system, call in systems.items()}
            turns: dict[str, list[float]] = {system: [] for system in systems}
            for _ in range(TURNS):
                for system, call in systems.items():
                    turns[system].append(microseconds(call, times[system]))
            for system, taken in turns.items():
                conditions = f"forward, float32, one thread; least processor time of {TURNS} turns"
                name = f"attend-cpu/{list(shape)}, {mask}"
                rows.append(Row(name, system, round(min(taken), 1), "µs", conditions))
                print(rows[-1], flush=True)
    print(write("attend_cpu", rows, device=cpu()))


if __name__ == "__main__":
    main()
