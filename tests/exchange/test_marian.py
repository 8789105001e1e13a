"""Marian models of Hugging Face, imported: they write what `transformers` writes, token for token."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file

from jumok.errors import DataError
from jumok.exchange.convert import import_model, read_foreign
from jumok.tasks import load
from jumok.tasks.translator import Translator
from support.commands import well

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")

PAIRS = [
    ("the cat sat on the mat .", "die Katze saß auf der Matte ."),
    ("a dog runs in the park", "ein Hund läuft im Park"),
    ("two men are talking", "zwei Männer reden"),
    ("I like green apples and red wine", "ich mag grüne Äpfel und Rotwein"),
    ("she reads a long book about history", "sie liest ein langes Buch über Geschichte"),
    ("the file could not be opened", "die Datei konnte nicht geöffnet werden"),
    ("how many people live here ?", "wie viele Leute wohnen hier ?"),
]
LONGEST = 38
TEXTS = [
    "the cat runs in the park",
    "two men like apples",
    ">>deu<< how many books ?",
    "Ünknown ｗｉｄｅ letters",
    "  she   reads  a book ",
]


class Original(NamedTuple):
    """A model of `transformers` and the folder it was saved in."""

    folder: Path
    model: Any
    tokenizer: Any

    def pieces(self, text: str, beam: int) -> list[str]:
        """What it writes."""
        ids = self.model.generate(
            **self.tokenizer([text], return_tensors="pt"), num_beams=beam, max_length=LONGEST + 2
        )[0]
        return [piece for piece in self.names(ids) if piece not in ("<pad>", "</s>")]

    def names(self, ids: Any) -> list[str]:
        """The pieces of target ids."""
        return [self.tokenizer.decoder[int(id)] for id in ids]


def save_sentencepiece(lines: list[str], path: Path, kind: str) -> list[str]:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 10), model_writer=model, vocab_size=60, model_type=kind, minloglevel=5,
        hard_vocab_limit=False,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(id) for id in range(3, processor.get_piece_size())]


def numbered(pieces: list[str], *, pad_first: bool) -> dict[str, int]:
    names = ["</s>", "<unk>", *(["<pad>"] if pad_first else []), *pieces, ">>deu<<", *([] if pad_first else ["<pad>"])]
    return {piece: id for id, piece in enumerate(dict.fromkeys(names))}


def make_original(folder: Path, *, kind: str = "unigram", separate: bool = False, **settings: Any) -> Original:
    """A small Marian model that has learnt a few sentences, so that its outputs end, saved by `transformers`."""
    folder.mkdir()
    source, target = (
        save_sentencepiece([pair[side] for pair in PAIRS], folder / name, kind)
        for side, name in enumerate(["source.spm", "target.spm"])
    )
    ids = numbered(source if separate else source + target, pad_first=separate)
    target_ids = numbered(target, pad_first=True) if separate else ids
    (folder / "vocab.json").write_text(json.dumps(ids))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(target_ids))
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json"),
        target_vocab_file=str(folder / "target_vocab.json") if separate else None, separate_vocabs=separate,
    )  # fmt: skip
    shape: dict[str, Any] = {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 64, "activation_function": "swish",
        "scale_embedding": True, "max_position_embeddings": 64, "dropout": 0.0,
    }  # fmt: skip
    pad = target_ids["<pad>"]
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=len(ids), decoder_vocab_size=len(target_ids), pad_token_id=pad, decoder_start_token_id=pad,
        eos_token_id=0, forced_eos_token_id=None, share_encoder_decoder_embeddings=not separate,
        **{"tie_word_embeddings": not separate} | shape | settings,
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    model.final_logits_bias.normal_(std=0.3)
    learn(model, tokenizer)
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(folder)
    return Original(folder, model.eval(), tokenizer)


def learn(model: Any, tokenizer: Any) -> None:
    batch = tokenizer([source for source, _ in PAIRS], return_tensors="pt", padding=True)
    labels = tokenizer(text_target=[target for _, target in PAIRS], return_tensors="pt", padding=True).input_ids
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        optimiser.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimiser.step()


VARIANTS: dict[str, dict[str, Any]] = {
    "as OPUS-MT": {},
    "relu without scaled embeddings": {"activation_function": "relu", "scale_embedding": False},
    "gelu and an odd width": {"activation_function": "gelu", "d_model": 28},
    "bpe": {"kind": "bpe"},
    "untied output": {"tie_word_embeddings": False},
    "a vocabulary for each side": {"separate": True},
}


@pytest.fixture(scope="module", params=VARIANTS)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("marian") / "model", **VARIANTS[request.param])


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("opus") / "model")


@pytest.fixture(scope="module")
def imported(original: Original, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("imported") / "model"
    import_model(original.folder, folder)
    translator: Translator = load(folder, device="cpu")
    return translator


@pytest.mark.parametrize("beam", [1, 5])
def test_an_imported_model_writes_the_tokens_that_transformers_writes(
    original: Original, imported: Translator, beam: int
) -> None:
    wanted = {text: original.pieces(text, beam) for text in TEXTS}
    ended = {text: pieces for text, pieces in wanted.items() if len(pieces) < LONGEST}  # limits of length differ
    assert len(ended) >= 3
    for text, pieces in ended.items():
        (output,) = imported.translate([text], beam=beam, max_length=LONGEST, max_ratio=100.0)
        names = imported.trained.tokenizers.target.pieces
        assert [names[id] for id in output.pieces[0][1]] == pieces, text


def test_an_imported_tokenizer_cuts_texts_as_transformers_does(original: Original, imported: Translator) -> None:
    tokenizer = imported.trained.tokenizers.source
    names = {id: piece for piece, id in original.tokenizer.encoder.items()}
    for text in TEXTS:
        ours = [tokenizer.pieces[id] for id in tokenizer.encode(text)[1:]]
        assert ours == [names[id] for id in original.tokenizer(text).input_ids], text


def test_an_imported_model_translates_shows_its_attention_and_aligns_from_the_command_line(
    opus: Original, tmp_path: Path
) -> None:
    out = tmp_path / "imported"
    well("import", opus.folder, "--out", out)
    assert json.loads(well("look", out, "two men are talking", "--json").out)
    assert "-" in well("align", out, "--source", "-", stdin="two men are talking ||| zwei Männer reden\n").out
    assert well("translate", out, stdin="two men are talking\n").out.strip()


def test_offsets_of_an_imported_tokenizer_point_into_the_text_as_it_was_given(imported: Translator) -> None:
    text = ">>deu<<  two  ｍen\tlike apples "
    pieces = imported.trained.tokenizers.source.pieces_with_offsets(text)
    spans = [text[piece.start : piece.end] for piece in pieces]
    assert spans[0] == ">>deu<<"
    assert "".join(spans[1:]) == "twoｍenlikeapples"


OTHER = ["Всем привет , как дела ?", "Кошка сидит на ковре и смотрит в окно", "Объявление о концерте"]


def in_config(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def add_id(folder: Path, id: int) -> None:
    path = folder / "vocab.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"▁more": id}))


def in_parts(folder: Path, *, pickled: bool = False) -> list[Path]:
    """Write the weights into two files, as `transformers` does where they are large."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    name, end = ("pytorch_model", "bin") if pickled else ("model", "safetensors")
    files = [folder / f"{name}-0000{number}-of-00002.{end}" for number in (1, 2)]
    of = {weight: files[number % 2] for number, weight in enumerate(sorted(tensors))}
    for file in files:
        part = {weight: tensors[weight] for weight in tensors if of[weight] == file}
        if pickled:
            torch.save(part, file)
        else:
            save_file(part, file)
    index = {"metadata": {}, "weight_map": {weight: file.name for weight, file in of.items()}}
    (folder / f"{name}.{end}.index.json").write_text(json.dumps(index))
    return files


@pytest.mark.parametrize("pickled", [False, True])
def test_weights_in_several_files_are_read(opus: Original, tmp_path: Path, pickled: bool) -> None:
    folder = tmp_path / "parts"
    shutil.copytree(opus.folder, folder)
    in_parts(folder, pickled=pickled)
    ours, whole = (read_foreign(path).model.state_dict() for path in (folder, opus.folder))
    assert all(torch.equal(ours[name], whole[name]) for name in whole)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "config.json").write_text('{"model_type": "t5"}'), ["t5", "marian"]),
        (lambda folder: (folder / "config.json").write_text("[1"), ["config.json", "damaged"]),
        (lambda folder: (folder / "vocab.json").write_text('{"a": "b"}'), ["vocab.json", "vocabulary"]),
        (lambda folder: (folder / "source.spm").write_bytes(b"no model"), ["source.spm", "sentencepiece"]),
        (lambda folder: (folder / "target.spm").unlink(), ["target.spm", "missing"]),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 100), ["model.safetensors", "safetensors"]),
        (lambda folder: (folder / "model.safetensors").unlink(), ["pytorch_model.bin"]),
        (lambda folder: in_parts(folder)[0].unlink(), ["model-00001-of-00002.safetensors", "missing"]),
        (lambda folder: in_config(folder, d_model=64), ["config.json", "d_model = 64"]),
        (lambda folder: in_config(folder, encoder_layers=1), ["numbers of layers in config.json"]),
        (lambda folder: add_id(folder, 99999), ["vocab.json", "99,999"]),
        (lambda folder: save_sentencepiece(OTHER, folder / "source.spm", "unigram"), ["source.spm", "%", "pieces"]),
        (shutil.rmtree, ["there is no folder"]),
    ],
)
def test_a_folder_that_is_no_whole_marian_model_is_refused_in_one_line(
    opus: Original, tmp_path: Path, damage: Callable[[Path], object], words: list[str]
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(opus.folder, folder)
    damage(folder)
    with pytest.raises(DataError) as error:
        import_model(folder, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words)
    assert not (tmp_path / "out").exists()
