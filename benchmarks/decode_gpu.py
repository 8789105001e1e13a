"""Beam search and greedy search on a CUDA GPU, compared with step-by-step search and Hugging Face's generate.

    python -m benchmarks.decode_gpu

Models with random weights, sources and outputs of 32 tokens: 128 sentences, one sentence and, for jumok alone, more
than 128. The id gpu-decode is a Transformer base with beam size 5. jumok runs in fp16, its default, bf16 and float32;
"step by step" is the readable search, which also runs on a CPU, in fp16. The last work has sentences and outputs of
different lengths in the batches of a translator: waiting sentences take the rows of finished ones, or one batch follows
another. Writes decode_gpu.json: tokens per second, and milliseconds for one sentence.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.results import Row, installed, write
from jumok.bench import JUMOK
from jumok.bench.decoding import random_source
from jumok.bench.peers import BOS, EOS, PAD, RnnShape, TransformerShape, jumok_rnn, jumok_transformer, marian
from jumok.bench.timing import Call, Timing, Work, time_work
from jumok.decoding import DecodingConfig, Specials, beam_search
from jumok.decoding.config import SearchPrecision
from jumok.decoding.encoder_graphs import encode
from jumok.decoding.half_precision_search import in_precision, search_in_precision
from jumok.decoding.static_search import static_search
from jumok.models import EncoderDecoder
from jumok.models.encoder_decoder import Encoding
from jumok.tasks.part_search import joined_batches, part_batches
from jumok.tasks.required_text import SourcePart

SECONDS = 0.3
"""How long each system is timed, in three rounds at least."""
LENGTH = 32
MANY = 128
MORE = (512, 1024)
TOKENS = 4096
"""Tokens of a batch of a `Translator`."""
ONE_BY_ONE = f"{JUMOK}, one batch after another"
DEVICE = torch.device("cuda")
SPECIALS = Specials(PAD, BOS, EOS)


class Model(NamedTuple):
    """A model to search with; that of Hugging Face where there is one."""

    name: str
    vocabulary: int
    ours: Callable[[], EncoderDecoder]
    theirs: Callable[[], torch.nn.Module] | None = None


def models() -> Iterator[Model]:
    base, small, rnn = TransformerShape(6, 512, 32_000), TransformerShape(3, 256, 32_000), RnnShape(256, 512, 8_000)
    yield Model("base", base.vocabulary, partial(jumok_transformer, base), partial(marian, base))
    yield Model("RNNsearch", rnn.vocabulary, partial(jumok_rnn, rnn, "additive"))
    yield Model("small", small.vocabulary, partial(jumok_transformer, small), partial(marian, small))


def settings(width: int, precision: SearchPrecision = "auto") -> DecodingConfig:
    return DecodingConfig(beam=width, min_length=LENGTH, max_length=LENGTH, precision=precision)


def fast(make: Callable[[], EncoderDecoder], source: Tensor, width: int, precision: SearchPrecision) -> Call:
    model, visible = make().to(DEVICE).eval(), torch.ones_like(source, dtype=torch.bool)
    return lambda: search_in_precision(model, (source, visible), SPECIALS, settings(width, precision), n_best=1)


def step_by_step(make: Callable[[], EncoderDecoder], source: Tensor, width: int) -> Call:
    model, visible = make().to(DEVICE).half().eval(), torch.ones_like(source, dtype=torch.bool)
    model.decoder.has_static_state = lambda: False  # type: ignore[method-assign]

    def decode() -> None:
        with torch.inference_mode():
            beam_search(model.decoder, model.encoder(source, visible), SPECIALS, settings(width), n_best=1)

    return decode


def generate(make: Callable[[], torch.nn.Module], source: Tensor, width: int) -> Call:
    model, seen = make().to(DEVICE).half().eval(), torch.ones_like(source)
    lengths = {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH}

    def decode() -> None:
        with torch.inference_mode():
            model.generate(input_ids=source, attention_mask=seen, num_beams=width, do_sample=False, **lengths)  # type: ignore[operator]

    return decode


def work(model: Model, sentences: int, width: int) -> Work:
    source = random_source(sentences, LENGTH, model.vocabulary).to(DEVICE)
    precisions: dict[str, SearchPrecision] = {JUMOK: "auto", f"{JUMOK} bf16": "bf16", f"{JUMOK} float32": "float32"}
    systems = {name: partial(fast, model.ours, source, width, precision) for name, precision in precisions.items()}
    if sentences > MANY:
        return Work(f"{model.name}, beam {width}", {JUMOK: systems[JUMOK]}, tokens=sentences * LENGTH)
    if sentences == MANY:
        systems[f"{JUMOK}, step by step"] = partial(step_by_step, model.ours, source, width)
    if model.theirs is not None:
        systems["Hugging Face Marian"] = partial(generate, model.theirs, source, width)
    return Work(f"{model.name}, beam {width}", systems, tokens=sentences * LENGTH)


def unlike_lengths(sentences: int) -> tuple[Tensor, Tensor]:
    """Lengths like those of Multi30k's test set and its references: both have 15.1 tokens on average, 6 to 42."""
    numbers = torch.Generator().manual_seed(0)
    sources = torch.randn(sentences, generator=numbers).mul(0.296).add(2.671).exp().round().clamp(6, 34)
    outputs = (sources * torch.randn(sentences, generator=numbers).mul(0.179).exp()).round().clamp(6, 42)
    return sources.long(), outputs.long()


def batched(
    make: Callable[[], EncoderDecoder], vocabulary: int, sentences: int, width: int, tokens: int, *, refills: bool
) -> Call:
    """The searches of a translator with batches of so many tokens, and outputs of given lengths."""
    sources, outputs = unlike_lengths(sentences)
    parts = [SourcePart("", number, 0, [3] * length) for number, length in enumerate(sources.tolist())]
    batches = part_batches(parts, width, tokens=tokens)
    searches = list(joined_batches(parts, batches) if refills else ((batch, len(batch)) for batch in batches))
    config = DecodingConfig(beam=width)
    model = in_precision(make().to(DEVICE).eval(), torch.float16)
    with torch.no_grad():
        model.decoder.get_parameter("output.bias")[EOS] = -1e4  # only a sentence of its greatest length ends

    def encoded(numbers: list[int]) -> Encoding:
        length = int(sources[numbers].max())
        visible = torch.arange(length) < sources[numbers, None]
        source = random_source(len(numbers), length, vocabulary).where(visible, PAD)
        return encode(model.encoder, source.to(DEVICE), visible.to(DEVICE))

    @torch.no_grad()
    def decode() -> None:
        for numbers, rows in searches:
            parts = [numbers[start : start + rows] for start in range(0, len(numbers), rows)]
            encoding, longest = Encoding.joined(list(map(encoded, parts))), outputs[numbers]
            found = static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=1, rows=rows)
            assert [len(best.ids) for (best,) in found] == longest.tolist()

    return decode


def unlike_work(model: Model, sentences: int, width: int, tokens: int) -> Work:
    make = partial(batched, model.ours, model.vocabulary, sentences, width, tokens)
    systems = {JUMOK: partial(make, refills=True), ONE_BY_ONE: partial(make, refills=False)}
    what = f"{model.name}, beam {width}, {sentences:,} sentences, {tokens:,} tokens"
    return Work(what, systems, tokens=int(unlike_lengths(sentences)[1].sum()))


def unlike_rows(timing: Timing) -> Row:
    rate = None if timing.tokens_per_second is None else round(timing.tokens_per_second)
    what = f"{timing.work}, 6 to 42 tokens out, 15 on average; median"
    return Row(f"decoding-gpu-lengths/{timing.work}", timing.system, rate, "tok/s", timing.problem or what)


def rows(timing: Timing, sentences: int) -> Iterator[Row]:
    what = f"{timing.work}, {sentences} × {LENGTH} tokens"
    conditions = timing.problem or f"{what}; median"
    if sentences == 1:
        milliseconds = None if timing.seconds is None else round(1e3 * timing.seconds, 2)
        yield Row(f"decoding-gpu-latency/{timing.work}", timing.system, milliseconds, "ms", conditions)
        return
    rate = None if timing.tokens_per_second is None else round(timing.tokens_per_second)
    if sentences > MANY:
        yield Row(f"decoding-gpu-large/{timing.work}, {sentences} sentences", JUMOK, rate, "tok/s", conditions)
        return
    goal = timing.work == "base, beam 5"
    yield Row("gpu-decode" if goal else f"decoding-gpu/{timing.work}", timing.system, rate, "tok/s", conditions)


def main() -> None:
    written: list[Row] = []
    packages = installed("torch", "triton", "transformers")
    for model in models():
        for sentences in (MANY, 1, *MORE):
            for width in (5, 1):
                for timing in time_work(work(model, sentences, width), DEVICE, seconds=SECONDS):
                    for row in rows(timing, sentences):
                        written.append(row)
                        print(*row[:4], timing.problem, flush=True)
                write("decode_gpu", written, device=torch.cuda.get_device_name(), packages=packages)
        for sentences in (1_000, 4_000):
            for width, tokens in ((5, TOKENS), (5, 4 * TOKENS), (1, TOKENS)):
                for timing in time_work(unlike_work(model, sentences, width, tokens), DEVICE, seconds=SECONDS):
                    written.append(row := unlike_rows(timing))
                    print(*row[:4], timing.problem, flush=True)
            write("decode_gpu", written, device=torch.cuda.get_device_name(), packages=packages)


if __name__ == "__main__":
    main()
