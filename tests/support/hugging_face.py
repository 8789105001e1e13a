"""Small models of `transformers` that have learned a few sentences, so that their outputs end, as tests import them."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from jumok.errors import ArgumentError, DataError
from jumok.exchange.convert import import_model
from jumok.tasks import load
from jumok.tasks.translator import Translator

PAIRS = [
    ("the cat sat on the mat .", "die Katze saß auf der Matte ."),
    ("a dog runs in the park", "ein Hund läuft im Park"),
    ("two men are talking", "zwei Männer reden"),
    ("I like green apples and red wine", "ich mag grüne Äpfel und Rotwein"),
    ("she reads a long book about history", "sie liest ein langes Buch über Geschichte"),
    ("the file could not be opened", "die Datei konnte nicht geöffnet werden"),
    ("how many people live here ?", "wie viele Leute wohnen hier ?"),
]
SHAPE: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "dropout": 0.0, "attention_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
}  # fmt: skip
LONGEST = 22
"""Most tokens of an output; limits of length differ from toolkit to toolkit, so that longer ones are not compared."""


def save_sentencepiece(lines: list[str], path: Path, kind: str, size: int) -> list[str]:
    """Train a sentencepiece model; its pieces without the special ones."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 10), model_writer=model, vocab_size=size, model_type=kind, minloglevel=5,
        hard_vocab_limit=False,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(id) for id in range(3, processor.get_piece_size())]


def learn(model: Any, tokenizer: Any, steps: int) -> None:
    """Train a model of `transformers` on the pairs."""
    batch = tokenizer([source for source, _ in PAIRS], return_tensors="pt", padding=True)
    labels = tokenizer(text_target=[target for _, target in PAIRS], return_tensors="pt", padding=True).input_ids
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimiser.step()


def imported_translator(original: Path, folder: Path, **languages: str) -> Translator:
    """The model of a folder of `transformers`, imported into another folder."""
    import_model(original, folder, **languages)
    translator: Translator = load(folder, device="cpu")
    return translator


def assert_writes(translator: Translator, wanted: dict[str, list[str]], beam: int, *, least: int) -> None:
    """Check that a translator writes the same pieces for each text; `least` of the texts must be worth comparing."""
    ended = {text: pieces for text, pieces in wanted.items() if len(pieces) < LONGEST}
    assert len(ended) >= least
    names = translator.trained.tokenizers.target.pieces
    for text, pieces in ended.items():
        (output,) = translator.translate([text], beam=beam, max_length=LONGEST, max_ratio=100.0)
        assert [names[id] for id in output.pieces[0][1]] == pieces, text


def assert_refused(whole: Path, tmp_path: Path, damage: Callable[[Path], object], words: list[str]) -> None:
    """Check that a damaged copy of a folder is refused in one line with these words, and that nothing is left."""
    folder = tmp_path / "damaged"
    shutil.copytree(whole, folder)
    damage(folder)
    with pytest.raises((DataError, ArgumentError)) as error:
        import_model(folder, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert not (tmp_path / "out").exists()
