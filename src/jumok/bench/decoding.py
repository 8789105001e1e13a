"""Decoding: beam search of random models, with every output as long as the others."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jumok.bench import JUMOK, Size
from jumok.bench.peers import BOS, EOS, PAD, SPECIALS, RnnShape, TransformerShape, jumok_rnn, jumok_transformer, marian
from jumok.bench.timing import Call, Prepare, Work
from jumok.data import Tokenizer, TokenizerConfig, TokenizerPair
from jumok.decoding import DecodingConfig, Specials
from jumok.decoding.ctranslate2_engine import CTranslate2Engine, is_installed
from jumok.decoding.ctranslate2_model import write_model
from jumok.decoding.half_precision_search import search_in_precision
from jumok.models import EncoderDecoder

BEAM = 5
OWN_ENGINE = "jumok, own engine"


class DecodingSizes(NamedTuple):
    """The models, and a batch: sentences × tokens of source and of output."""

    transformer: TransformerShape
    rnn: RnnShape
    sentences: int
    length: int


SIZES: dict[str, dict[Size, DecodingSizes]] = {
    "cpu": {
        "small": DecodingSizes(TransformerShape(2, 64, 1_000), RnnShape(32, 64, 1_000), 4, 6),
        "medium": DecodingSizes(TransformerShape(3, 256, 8_000), RnnShape(256, 512, 8_000), 16, 20),
        "large": DecodingSizes(TransformerShape(6, 512, 8_000), RnnShape(256, 512, 8_000), 32, 30),
    },
    "cuda": {
        "small": DecodingSizes(TransformerShape(3, 256, 8_000), RnnShape(128, 256, 8_000), 16, 20),
        "medium": DecodingSizes(TransformerShape(6, 512, 32_000), RnnShape(256, 512, 8_000), 128, 32),
        "large": DecodingSizes(TransformerShape(6, 512, 32_000), RnnShape(512, 1024, 32_000), 256, 64),
    },
}


def works(device: torch.device, size: Size) -> Iterator[Work]:
    """In output tokens per second; one sentence alone, then a batch of them."""
    transformer, rnn, many, length = SIZES[device.type][size]
    for sentences in (1, many):
        source = random_source(sentences, length, transformer.vocabulary)
        where = f"beam {BEAM}, {sentences} × {length} tokens"
        yield Work(
            f"{transformer}, {where}",
            {
                **_engines(transformer, source, device),
                "Hugging Face Marian": partial(_marian, transformer, source, device),
                "CTranslate2": partial(_ctranslate2, transformer, source, device, _precision(device)),
                "CTranslate2 int8": partial(_ctranslate2, transformer, source, device, "int8"),
            },
            tokens=sentences * length,
        )
    source = random_source(many, length, rnn.vocabulary)
    yield Work(
        f"RNNsearch, {rnn}, beam {BEAM}, {many} × {length} tokens",
        {JUMOK: partial(_jumok, partial(jumok_rnn, rnn, "additive"), source, device)},
        tokens=many * length,
    )


def random_source(sentences: int, length: int, vocabulary: int) -> Tensor:
    """Random tokens without padding, the last of the vocabulary excepted."""
    return torch.randint(SPECIALS, vocabulary - 1, (sentences, length), generator=torch.Generator().manual_seed(0))


def _precision(device: torch.device) -> str:
    """The precision that a library is usually asked for."""
    return "float16" if device.type == "cuda" else "float32"


def _engines(shape: TransformerShape, source: Tensor, device: torch.device) -> dict[str, Prepare]:
    """The engine that `jumok translate` uses by default, and our own where that is another one."""
    own = partial(_jumok, partial(jumok_transformer, shape), source, device)
    if device.type != "cpu" or not is_installed():
        return {JUMOK: own}
    return {JUMOK: partial(_default_engine, shape, source), OWN_ENGINE: own}


def _default_engine(shape: TransformerShape, source: Tensor) -> Call:
    """Our model exported to CTranslate2, with the settings of `jumok translate`."""
    words = (f"w{number}" for number in range(SPECIALS, shape.vocabulary))
    tokenizer = Tokenizer.train(words, TokenizerConfig(kind="word", size=shape.vocabulary))
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        write_model(jumok_transformer(shape), tokenizers, folder)
        engine = CTranslate2Engine(Path(folder), "float32", tokenizers, torch.get_num_threads())
    length = source.shape[1]
    config = DecodingConfig(beam=BEAM, min_length=length, max_length=length)
    return lambda: engine.generate(source.tolist(), [length] * len(source), config)


def _jumok(make: Callable[[], EncoderDecoder], source: Tensor, device: torch.device) -> Call:
    """Our own search, on a GPU in fp16."""
    length = source.shape[1]
    config = DecodingConfig(beam=BEAM, min_length=length, max_length=length)
    model, source = make().to(device).eval(), source.to(device)
    inputs = source, torch.ones_like(source, dtype=torch.bool)
    return lambda: search_in_precision(model, inputs, Specials(PAD, BOS, EOS), config)


def _marian(shape: TransformerShape, source: Tensor, device: torch.device) -> Call:
    model, source = marian(shape).to(device).eval(), source.to(device)
    if device.type == "cuda":
        model = model.half()
    settings: dict[str, Any] = {
        "num_beams": BEAM,
        "do_sample": False,
        "min_new_tokens": source.shape[1],
        "max_new_tokens": source.shape[1],
    }

    def decode() -> None:
        with torch.inference_mode():
            model.generate(input_ids=source, attention_mask=torch.ones_like(source), **settings)

    return decode


def _ctranslate2(shape: TransformerShape, source: Tensor, device: torch.device, precision: str) -> Call:
    """The weights of Hugging Face's Marian, converted."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    # The converter takes the last id for Marian's padding and drops it; no source has it.
    words = ["<blank>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(SPECIALS, shape.vocabulary - 1))]
    spec = MarianMTLoader().get_model_spec(marian(shape))
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    spec.optimize(quantization=precision)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        threads = {} if device.type == "cuda" else {"intra_threads": torch.get_num_threads()}
        translator = ctranslate2.Translator(
            folder, device=device.type, compute_type=precision, inter_threads=1, **threads
        )
    length = source.shape[1]
    texts = [[words[number] for number in row] for row in source.tolist()]
    limits = {"min_decoding_length": length, "max_decoding_length": length}
    return lambda: translator.translate_batch(texts, beam_size=BEAM, max_batch_size=len(texts), **limits)
