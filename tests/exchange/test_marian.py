"""Marian models of Hugging Face, imported: they write what `transformers` writes, token for token."""

import json
import pickle
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from jumok import train
from jumok.data.sentencepiece_model import PIECES
from jumok.data.subwords import SPECIALS, fields_of, length_delimited
from jumok.decoding.config import DecodingConfig
from jumok.errors import DataError, ModelError
from jumok.exchange.convert import read_foreign
from jumok.tasks import TRANSLATION, load
from jumok.tasks.translator import Translator
from support.commands import well, write
from support.hugging_face import (
    LONGEST,
    PAIRS,
    SHAPE,
    assert_refused,
    assert_writes,
    imported_translator,
    learn,
    save_sentencepiece,
)
from support.serving import serving

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")

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
            **self.tokenizer([text], return_tensors="pt"),
            num_beams=beam,
            max_length=LONGEST + 2,
            early_stopping="never",
        )[0]
        return [piece for piece in self.names(ids) if piece not in ("<pad>", "</s>")]

    def names(self, ids: Any) -> list[str]:
        """The pieces of target ids."""
        return [self.tokenizer.decoder[int(id)] for id in ids]


def numbered(pieces: list[str], *, pad_first: bool) -> dict[str, int]:
    names = ["</s>", "<unk>", *(["<pad>"] if pad_first else []), *pieces, ">>deu<<", *([] if pad_first else ["<pad>"])]
    return {piece: id for id, piece in enumerate(dict.fromkeys(names))}


def make_original(
    folder: Path,
    *,
    kind: str = "unigram",
    separate: bool = False,
    zero_pad: bool = False,
    tags: tuple[str, ...] = (),
    **settings: Any,
) -> Original:
    """A small Marian model that has learned a few sentences, so that its outputs end, saved by `transformers`."""
    folder.mkdir()
    source, target = (
        save_sentencepiece([pair[side] for pair in PAIRS], folder / name, kind, 60)
        for side, name in enumerate(["source.spm", "target.spm"])
    )
    ids = numbered([*tags, *(source if separate else source + target)], pad_first=separate)
    target_ids = numbered(target, pad_first=True) if separate else ids
    (folder / "vocab.json").write_text(json.dumps(ids))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(target_ids))
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json"),
        target_vocab_file=str(folder / "target_vocab.json") if separate else None, separate_vocabs=separate,
    )  # fmt: skip
    pad = target_ids["<pad>"]
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=len(ids), decoder_vocab_size=len(target_ids), pad_token_id=pad, decoder_start_token_id=pad,
        eos_token_id=0, forced_eos_token_id=None, share_encoder_decoder_embeddings=not separate,
        **{"activation_function": "swish", "scale_embedding": True, "tie_word_embeddings": not separate} | SHAPE
        | settings,
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    model.final_logits_bias.normal_(std=0.3)
    learn(model, tokenizer, 80)
    if zero_pad:
        add_zero_pad(model, pad)
    model.generation_config.bad_words_ids = [[pad]]
    model.generation_config.renormalize_logits = True
    model.save_pretrained(folder)
    return Original(folder, model.eval(), tokenizer)


@torch.no_grad()
def add_zero_pad(model: Any, pad: int) -> None:
    """Make padding the likeliest token, as it is where all other biases are low."""
    model.model.shared.weight[pad] = 0
    model.final_logits_bias -= 8
    model.final_logits_bias[0, pad] = 0


VARIANTS: dict[str, dict[str, Any]] = {
    "as OPUS-MT": {},
    "padding of zeros": {"zero_pad": True},
    "relu without scaled embeddings": {"activation_function": "relu", "scale_embedding": False},
    "gelu and an odd width": {"activation_function": "gelu", "d_model": 28},
    "bpe": {"kind": "bpe"},
    "untied output": {"tie_word_embeddings": False},
    "a vocabulary for each side": {"separate": True},
}


@pytest.fixture(scope="module", params=VARIANTS)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Original:
    variant = VARIANTS[request.param]
    if not variant:
        return request.getfixturevalue("opus")
    return make_original(tmp_path_factory.mktemp("marian") / "model", **variant)


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("opus") / "model")


@pytest.mark.parametrize("beam", [1, 5])
def test_an_imported_model_writes_the_tokens_that_transformers_writes(
    original: Original, imported: Translator, beam: int
) -> None:
    texts = TEXTS if beam == 1 else TEXTS[:3]
    assert_writes(imported, {text: original.pieces(text, beam) for text in texts}, beam, least=2)


def test_ctranslate2_runs_an_imported_model(original: Original, imported: Translator) -> None:
    pytest.importorskip("ctranslate2")
    config = DecodingConfig(beam=1)  # a wider beam would leave what these small models are unsure of to our search
    engine = imported.engines.ctranslate2(config, 1, watched=False)
    assert engine is not None
    sources = [imported.trained.tokenizers.source.encode(source)[1:] for source, _ in PAIRS]
    found = engine.search(sources, config, 1, imported.trained.model.decoder.limit)
    assert sum(hypotheses is not None for hypotheses in found) >= len(PAIRS) // 2


def test_an_imported_tokenizer_cuts_texts_as_transformers_does(original: Original, imported: Translator) -> None:
    tokenizer = imported.trained.tokenizers.source
    names = {id: piece for piece, id in original.tokenizer.encoder.items()}
    for text in TEXTS:
        ours = [tokenizer.pieces[id] for id in tokenizer.encode(text)[1:]]
        assert ours == [names[id] for id in original.tokenizer(text).input_ids], text


def test_pieces_of_both_languages_are_decoded_as_transformers_does(original: Original, imported: Translator) -> None:
    tokenizer, picks = imported.trained.tokenizers.target, random.Random(0)
    known = {piece: id for id, piece in original.tokenizer.decoder.items()}
    pieces = [piece for piece in tokenizer.pieces[SPECIALS:] if piece in known]
    for length in [1] * len(pieces) + [2, 4, 8] * 100:
        names = picks.choices(pieces, k=length)
        theirs = original.tokenizer.decode([known[name] for name in names])
        assert tokenizer.decode(map(tokenizer.pieces.index, names)) == theirs, names


def test_an_imported_model_of_a_small_vocabulary_does_not_doubt_what_it_learned(imported: Translator) -> None:
    assert [found.warnings() for found in imported.translate([source for source, _ in PAIRS])] == [{}] * len(PAIRS)
    assert "unknown" in imported.translate(["Привет, как дела?"])[0].warnings()["words"]


def test_an_imported_model_says_what_its_own_tokenizer_does_to_numbers(imported: Translator) -> None:
    assert not imported.trained.recipe.tokenizer.split_digits  # its text had no numbers
    assert "digits" not in TRANSLATION.describe(imported.trained)["tokenizer"]


def test_an_imported_model_translates_shows_its_attention_and_aligns_from_the_command_line(
    opus: Original, tmp_path: Path
) -> None:
    out = tmp_path / "imported"
    well("import", opus.folder, "--out", out)
    shown = well("inspect", out).out
    assert "imported from" in shown
    assert "metrics.jsonl" not in shown
    assert json.loads(well("look", out, "two men are talking", "--json").out)
    assert "-" in well("align", out, "--source", "-", stdin="two men are talking ||| zwei Männer reden\n").out
    assert well("translate", out, stdin="two men are talking\n").out.strip()


def test_a_tag_that_the_model_does_not_have_is_a_warning(opus: Original, tmp_path: Path) -> None:
    out = tmp_path / "imported"
    well("import", opus.folder, "--out", out)
    lines = ">>deu<< two men\n>>xyz<< two men\n>> two men <<\n>>xyz<< a dog\n"
    done = well("translate", out, stdin=lines)
    warnings = [line for line in done.err.splitlines() if "tag" in line]
    assert warnings == [
        "line 2: the model has no tag >>xyz<<, so it was translated as text; its tags are >>deu<<",
        "in all, 2 lines begin with a tag that was translated as text",
    ]
    (answer,) = map(json.loads, well("translate", out, "--json", stdin=">>xyz<< two men\n").out.splitlines())
    assert any("no tag >>xyz<<" in warning for warning in answer["warnings"])
    assert "no tag >>xyz<<" in well("look", out, ">>xyz<< two men", "--json").err


@pytest.mark.slow
def test_a_model_of_several_target_languages_asks_for_one(tmp_path: Path) -> None:
    original, out = make_original(tmp_path / "model", tags=(">>fra<<",)), tmp_path / "imported"
    assert well("import", original.folder, "--out", out).err.endswith(f"jumok translate {out} --to deu\n")
    (warning,) = [line for line in well("translate", out, stdin="two men\n").err.splitlines() if "target lang" in line]
    assert "choose one, as with --to deu, or begin the text with its tag, such as >>deu<<" in warning
    assert "target languages" not in well("translate", out, "--to", "fra", stdin="two men\n").err
    assert "target languages" not in well("translate", out, stdin=">>fra<< two men\n").err


def test_a_tag_after_white_space_is_a_warning(opus: Original, tmp_path: Path) -> None:
    translator = imported_translator(opus.folder, tmp_path / "imported")
    known, unknown = translator.translate(["  >>deu<< two men", " >>xyz<< two men"])
    assert "white space comes before the tag >>deu<<" in known.warnings()["tag"]
    assert "the model has no tag >>xyz<<" in unknown.warnings()["tag"]


def test_an_export_to_onnx_gives_the_ids_of_tags(opus: Original, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    translator = imported_translator(opus.folder, tmp_path / "imported")
    well("export", tmp_path / "imported", "--to", "onnx", "--out", tmp_path / "exported")
    symbols = json.loads((tmp_path / "exported/model.json").read_text())["symbols"]
    assert [symbols[">>deu<<"]] == translator.trained.tokenizers.source.encode(">>deu<<")[1:-1]


def test_the_server_lists_the_target_languages_of_a_model(opus: Original, tmp_path: Path) -> None:
    translator = imported_translator(opus.folder, tmp_path / "imported")
    assert translator.language_choices == ([], ["deu"])
    with serving({"model": tmp_path / "imported"}) as live:
        (model,) = live.get("/api/models").json["models"]
        assert (model["source_languages"], model["target_languages"]) == ([], ["deu"])
        shown = live.post("/api/attention", {"text": "two men", "to": "deu"}).json
        assert shown["source"] == [">>deu<<", "two", "men", "</s>"]
        (answer,) = live.post("/api/translate", {"text": ">>xyz<< two men"}).json["translations"]
        assert "tag" in [warning["kind"] for warning in answer["warnings"]]


def test_offsets_of_an_imported_tokenizer_point_into_the_text_as_it_was_given(imported: Translator) -> None:
    text = ">>deu<<  two  ｍen\tlike apples "
    pieces = imported.trained.tokenizers.source.pieces_with_offsets(text)
    spans = [text[piece.start : piece.end] for piece in pieces]
    assert spans[0] == ">>deu<<"
    assert "".join(spans[1:]) == "twoｍenlikeapples"
    assert [piece.id for piece in pieces] == imported.trained.tokenizers.source.encode(text)[1:-1]


def test_the_description_and_the_licence_of_the_original_are_kept(opus: Original, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(opus.folder, tmp_path / "opus"))
    (folder / "README.md").write_text("licence: cc-by-4.0", encoding="utf-8")
    (folder / "LICENSE").write_text("CC-BY", encoding="utf-8")
    imported_translator(folder, tmp_path / "out")
    assert (tmp_path / "out/original-README.md").read_text(encoding="utf-8") == "licence: cc-by-4.0"
    assert (tmp_path / "out/original-LICENSE").read_text(encoding="utf-8") == "CC-BY"
    page = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert page.startswith("# A model imported by jumok\n")
    assert "imported from: opus" in page
    assert "trained on" not in page


@pytest.mark.slow
def test_an_imported_model_is_trained_further_averaged_evaluated_and_given_back(opus: Original, tmp_path: Path) -> None:
    start = imported_translator(opus.folder, tmp_path / "start")
    for side, name in enumerate(["new.en", "new.de"]):
        write(tmp_path / name, "".join(f"{pair[side]}\n" for pair in PAIRS))
    source, target = str(tmp_path / "new.en"), str(tmp_path / "new.de")
    tables = {
        "data": {"source": source, "target": target, "valid_source": source, "valid_target": target, "tag": "<med>"},
        "filter": {"duplicates": False},
        "training": {
            "start_from": str(tmp_path / "start"), "freeze": ["encoder.layers"], "steps": 6, "warmup": 1,
            "learning_rate": 1e-3, "validate_every": 3, "metric": "loss", "keep": 2,
        },
    }  # fmt: skip
    run = train(tables, out=tmp_path / "tuned", device="cpu", draw=False)
    assert run.model.decoding.beam == start.decoding.beam
    assert set(run.model.tags) == {*start.tags, "<med>"}
    well(
        "average",
        tmp_path / "tuned",
        *sorted((tmp_path / "tuned/checkpoints").glob("step-*")),
        "--out",
        tmp_path / "mean",
    )
    scores = well(
        "evaluate", tmp_path / "mean", "--source", source, "--reference", target, "--tag", "<med>", "--json"
    ).out
    assert json.loads(scores)["scores"]
    well("export", tmp_path / "mean", "--to", "marian-hf", "--out", tmp_path / "back")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "back").eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "back")
    for text in ("two men like apples", "<med> the cat runs in the park"):
        mean = load(tmp_path / "mean", device="cpu").translate([text], beam=1)[0].text
        (ids,) = model.generate(**tokenizer([text], return_tensors="pt"), num_beams=1, max_length=LONGEST + 2)
        assert tokenizer.decode(ids, skip_special_tokens=True) == mean


def test_a_folder_of_transformers_has_to_be_imported_before_it_is_used_or_trained_further(
    opus: Original, tmp_path: Path
) -> None:
    tables = {"data": {"corpus": "cldr"}, "training": {"start_from": str(opus.folder)}}
    for use in (lambda: load(opus.folder), lambda: train(tables, out=tmp_path / "run")):
        with pytest.raises(
            ModelError, match=rf"recipe.toml is missing; .*: jumok import {opus.folder} --out NEW_FOLDER"
        ):
            use()


@pytest.mark.parametrize("protocol", [2, 4])
def test_weights_that_contain_code_are_refused_without_a_warning(opus: Original, tmp_path: Path, protocol: int) -> None:
    folder = Path(shutil.copytree(opus.folder, tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Path("a")}, protocol=protocol))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=r"pytorch_model.bin is damaged, or contains code, .* or use model\.safe"):
            read_foreign(folder)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 298\n"
OTHER = ["Всем привет , как дела ?", "Кошка сидит на ковре и смотрит в окно", "Объявление о концерте"]


def in_config(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def in_generation(folder: Path, **settings: Any) -> None:
    (folder / "generation_config.json").write_text(json.dumps(settings))


def keep_pieces(path: Path, *, settings: bool) -> None:
    """Keep the first few pieces of a sentencepiece model, with or without the settings behind them."""
    fields = [(field, bytes(value)) for field, value in fields_of(path.read_bytes())]
    behind = [item for item in fields if item[0] != PIECES] if settings else []
    kept = [item for item in fields if item[0] == PIECES][:8]
    path.write_bytes(b"".join(length_delimited(*item) for item in kept + behind))


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


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
        (lambda folder: cut_in_half(folder / "model.safetensors"), ["asks for", "; download it again"]),
        (lambda folder: (folder / "model.safetensors").write_text(POINTER), ["git-lfs pointer; run git lfs pull"]),
        (lambda folder: (folder / "source.spm").write_text(POINTER), ["source.spm", "git-lfs pointer"]),
        (lambda folder: (folder / "model.safetensors").unlink(), ["pytorch_model.bin"]),
        (lambda folder: in_parts(folder)[0].unlink(), ["model-00001-of-00002.safetensors", "missing"]),
        (lambda folder: in_config(folder, d_model=64), ["config.json", "d_model = 64"]),
        (lambda folder: in_config(folder, d_model="32"), ["d_model must be a whole number", "it is '32'"]),
        (
            lambda folder: in_config(folder, encoder_attention_heads=5),
            ["config.json: encoder_attention_heads = 5 does not divide d_model = 32"],
        ),
        (lambda folder: in_config(folder, vocab_size=9), ["config.json", "vocab_size = 9"]),
        (lambda folder: in_config(folder, encoder_layers=1), ["numbers of layers in config.json"]),
        (lambda folder: add_id(folder, 99999), ["vocab.json", "99,999"]),
        (lambda folder: save_sentencepiece(OTHER, folder / "source.spm", "unigram", 60), ["source.spm", "%", "pieces"]),
        (lambda folder: in_config(folder, pad_token_id=None), ["config.json", "no pad_token_id"]),
        (lambda folder: in_config(folder, pad_token_id="1"), ["config.json", "pad_token_id = '1'"]),
        (lambda folder: in_config(folder, num_beams="x"), ["config.json", "num_beams = 'x'"]),
        (lambda folder: in_config(folder, length_penalty=float("nan")), ["config.json", "length_penalty = nan"]),
        (lambda folder: in_generation(folder, num_beams=-1), ["generation_config.json", "num_beams = -1"]),
        (lambda folder: in_generation(folder, length_penalty="x"), ["generation_config.json", "length_penalty = 'x'"]),
        (lambda folder: keep_pieces(folder / "source.spm", settings=False), ["source.spm", "damaged"]),
        (lambda folder: keep_pieces(folder / "source.spm", settings=True), ["vocab.json", "%", "source.spm"]),
        (shutil.rmtree, ["there is no folder"]),
    ],
)
def test_a_folder_that_is_no_whole_marian_model_is_refused_in_one_line(
    opus: Original, tmp_path: Path, damage: Callable[[Path], object], words: list[str]
) -> None:
    assert_refused(opus.folder, tmp_path, damage, words)
