"""Beam search on a CUDA GPU beside Hugging Face's generate and CTranslate2: id gpu-decode.

    python -m benchmarks.decode_gpu

Transformer base with random weights, 128 sentences of 32 tokens, beam 5, outputs of 32 tokens, float16; the works are
those of `jumok bench decoding`. Writes decode_gpu.json.
"""

import torch

from benchmarks.results import Row, installed, write
from jumok.bench.decoding import works
from jumok.bench.timing import time_work

SECONDS = 3.0
"""How long each system is timed."""


def main() -> None:
    device, rows = torch.device("cuda"), []
    for work in works(device, "medium"):
        base = work.name.startswith("Transformer") and "128 × 32" in work.name
        name = "gpu-decode" if base else f"decoding-gpu/{work.name}"
        for timing in time_work(work, device, seconds=SECONDS):
            rate = None if timing.tokens_per_second is None else round(timing.tokens_per_second)
            conditions = timing.problem or f"{work.name}, float16; median"
            rows.append(Row(name, timing.system, rate, "tok/s", conditions))
            print(name, timing.system, rate, timing.problem, flush=True)
    packages = installed("torch", "triton", "transformers", "ctranslate2")
    print(write("decode_gpu", rows, device=torch.cuda.get_device_name(), packages=packages))


if __name__ == "__main__":
    main()
