"""M2M-100 and NLLB models of Hugging Face, imported: they write what `transformers` writes, token for token."""

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sentencepiece
import torch

from jumok.data.dataset import write_dataset
from jumok.decoding.config import DecodingConfig
from jumok.decoding.ctranslate2_engine import CTranslate2Engine
from jumok.errors import ArgumentError, DataError
from jumok.exchange.convert import import_model
from jumok.tasks import load
from jumok.tasks.translator import Translator
from support.commands import jumok, well
from support.serving import serving

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PAIRS = [
    ("the cat sat on the mat .", "die Katze saß auf der Matte ."),
    ("a dog runs in the park", "ein Hund läuft im Park"),
    ("two men are talking", "zwei Männer reden"),
    ("I like green apples and red wine", "ich mag grüne Äpfel und Rotwein"),
    ("she reads a long book about history", "sie liest ein langes Buch über Geschichte"),
    ("the file could not be opened", "die Datei konnte nicht geöffnet werden"),
]
LONGEST = 38
TEXTS = ["the cat runs in the park", "two men like apples", "Ünknown ｗｉｄｅ letters", "she reads  a book"]


class Original(NamedTuple):
    """A model of `transformers`, the folder it was saved in, and the codes of English, German and Korean."""

    folder: Path
    model: Any
    tokenizer: Any
    codes: tuple[str, str, str]

    def pieces(self, text: str, beam: int, source: str, target: str) -> list[str]:
        """What it writes, its language first."""
        self.tokenizer.src_lang = source
        ids = self.model.generate(
            **self.tokenizer([text], return_tensors="pt"),
            num_beams=beam,
            max_length=LONGEST + 2,
            forced_bos_token_id=self.id_of(target),
        )[0]
        names = [
            re.sub("^__(.*)__$|^(..._....)$", r">>\1\2<<", name) for name in self.tokenizer.convert_ids_to_tokens(ids)
        ]
        return [name for name in names[1:] if name not in ("<pad>", "</s>")]

    def id_of(self, language: str) -> int:
        m2m = hasattr(self.tokenizer, "get_lang_id")
        return int(self.tokenizer.get_lang_id(language) if m2m else self.tokenizer.convert_tokens_to_ids(language))


def save_sentencepiece(path: Path) -> list[str]:
    model = io.BytesIO()
    lines = [text for pair in PAIRS for text in pair] * 10
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=110, model_type="bpe", minloglevel=5,
        hard_vocab_limit=False,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(id) for id in range(3, processor.get_piece_size())]


def m2m100_tokenizer(folder: Path) -> Any:
    pieces = save_sentencepiece(folder / "sentencepiece.bpe.model")
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces[:-2]]  # two pieces that the vocabulary lacks
    (folder / "vocab.json").write_text(json.dumps({name: id for id, name in enumerate(names)}))
    tokenizer = transformers.M2M100Tokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), src_lang="en", tgt_lang="de"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def nllb_tokenizer(folder: Path) -> Any:
    save_sentencepiece(folder / "sentencepiece.bpe.model")
    tokenizer = transformers.NllbTokenizer.from_pretrained(
        folder, extra_special_tokens=["deu_Latn", "eng_Latn", "kor_Hang"], src_lang="eng_Latn", tgt_lang="deu_Latn"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_original(folder: Path, *, nllb: bool = False, keep_pieces: bool = True, **settings: Any) -> Original:
    """A small model that has learnt a few sentences, so that its outputs end, saved by `transformers`."""
    folder.mkdir()
    tokenizer = nllb_tokenizer(folder) if nllb else m2m100_tokenizer(folder)
    if not keep_pieces:
        (folder / "sentencepiece.bpe.model").unlink()
    codes = ("eng_Latn", "deu_Latn", "kor_Hang") if nllb else ("en", "de", "ko")
    size = len(tokenizer) if nllb else tokenizer.encoder_size + 100 + tokenizer.num_madeup_words
    shape: dict[str, Any] = {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 64, "dropout": 0.0,
        "attention_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "max_position_embeddings": 64,
    }  # fmt: skip
    torch.manual_seed(0)
    config = transformers.M2M100Config(vocab_size=size, **shape | settings)
    model = transformers.M2M100ForConditionalGeneration(config)
    learn(model, tokenizer, codes)
    model.save_pretrained(folder)
    return Original(folder, model.eval(), tokenizer, codes)


def learn(model: Any, tokenizer: Any, codes: tuple[str, str, str]) -> None:
    tokenizer.src_lang, tokenizer.tgt_lang = codes[0], codes[1]
    batch = tokenizer([source for source, _ in PAIRS], return_tensors="pt", padding=True)
    labels = tokenizer(text_target=[target for _, target in PAIRS], return_tensors="pt", padding=True).input_ids
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimiser.step()


VARIANTS: dict[str, dict[str, Any]] = {
    "M2M-100": {},
    "NLLB": {"nllb": True},
    "NLLB without its sentencepiece model": {"nllb": True, "keep_pieces": False},
    "gelu, unscaled, an odd width": {"activation_function": "gelu", "scale_embedding": False, "d_model": 36},
    "untied": {"tie_word_embeddings": False},
}


@pytest.fixture(scope="module", params=VARIANTS)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("m2m100") / "model", **VARIANTS[request.param])


@pytest.fixture(scope="module")
def m2m100(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("plain") / "model")


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
    english, german, korean = original.codes
    for source, target, least in ((english, german, 2), (german, korean, 0)):
        translator = imported.between(source, target)
        assert translator.languages == (source, target)
        wanted = {text: original.pieces(text, beam, source, target) for text in TEXTS}
        ended = {text: pieces for text, pieces in wanted.items() if len(pieces) < LONGEST}  # limits differ
        assert len(ended) >= least
        for text, pieces in ended.items():
            (output,) = translator.translate([text], beam=beam, max_length=LONGEST, max_ratio=100.0)
            names = translator.trained.tokenizers.target.pieces
            assert [names[id] for id in output.pieces[0][1]] == pieces, text
            assert pieces[0] == f">>{target}<<"
            assert f">>{target}<<" not in output.text


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{"beam": 1}, {"beam": 5}, {"beam": 4, "length_penalty": 0.6}, {"beam": 5, "length_penalty": 0}]
)
def test_ctranslate2_finds_the_outputs_and_scores_of_our_search(
    original: Original, imported: Translator, settings: dict[str, Any]
) -> None:
    pytest.importorskip("ctranslate2")
    english, german, korean = original.codes
    texts = [*TEXTS, *(source for source, _ in PAIRS)]
    # Into Korean, which it has not learnt, it would often rather write nothing.
    for source, target in ((english, german), (german, korean)):
        translator = imported.between(source, target)
        ours, theirs = (translator.translate(texts, engine=name, **settings) for name in ("jumok", "ctranslate2"))
        assert [output.pieces for output in theirs] == [output.pieces for output in ours]
        assert [output.score for output in theirs] == pytest.approx([output.score for output in ours], abs=1e-4)
        assert "float32" in translator.engines.made


def test_the_engine_translates_most_sentences_into_a_language_that_was_learnt(
    original: Original, imported: Translator
) -> None:
    pytest.importorskip("ctranslate2")
    imported.translate(TEXTS)
    engine = imported.engines.made["float32"][1]
    assert isinstance(engine, CTranslate2Engine)
    sources = [imported.trained.tokenizers.source.encode(text)[1:] for text, _ in PAIRS]
    for beam in (1, 5):
        found = engine.search(sources, DecodingConfig(beam=beam), 1)
        assert sum(hypotheses is not None for hypotheses in found) >= len(PAIRS) // 2


def test_a_shortlist_serves_the_languages_it_was_made_for(m2m100: Original, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "imported"
    import_model(m2m100.folder, folder)
    translator = load(folder, device="cpu")
    source, target = translator.trained.tokenizers
    rows = [[source.encode(text), target.encode(translation)] for text, translation in PAIRS]
    (folder / "data").mkdir()
    write_dataset(folder / "data/mix-0.train.store", rows, size=source.size)
    for languages, expected in ((("en", "de"), True), (("en", "ko"), False), (("ko", "de"), False)):
        between = translator.between(*languages)
        assert between.translate(["two men are talking"], precision="int8")[0].text
        assert between.engines.made["int8"][1].has_shortlist == expected


def test_an_imported_tokenizer_cuts_texts_as_transformers_does(original: Original, imported: Translator) -> None:
    tokenizer = imported.trained.tokenizers.source
    original.tokenizer.src_lang = original.codes[0]
    for text in TEXTS:
        ours = [tokenizer.pieces[id] for id in tokenizer.encode(text)[1:]]
        theirs = original.tokenizer.convert_ids_to_tokens(original.tokenizer(text).input_ids)
        assert ours == [f">>{theirs[0].strip('_')}<<", *theirs[1:]], text


def test_languages_are_named_on_the_command_line_and_those_of_the_import_are_kept(
    m2m100: Original, tmp_path: Path
) -> None:
    out = tmp_path / "imported"
    well("import", m2m100.folder, "--out", out, "--to", "ko")
    assert load(out, device="cpu").languages == ("en", "ko")
    text = "two men are talking\n"
    german = well("translate", out, "--to", "de", stdin=text).out
    assert german.strip() == "zwei Männer reden"
    assert well("translate", out, stdin=text).out != german
    wrong = jumok("translate", out, "--to", "deu", stdin=text)
    assert wrong.code == 1
    assert "'deu' is not a language of this model" in wrong.err
    assert "de" in wrong.err.split(":")[-1]
    looked = [json.loads(well("look", out, text.strip(), "--json", *to).out)["text"] for to in ((), ("--to", "de"))]
    assert looked[0] != looked[1] == "zwei Männer reden"
    pair = "two men ||| zwei Männer\n"
    for options in ((), ("--from", "en", "--to", "de")):
        assert well("align", out, "--source", "-", *options, stdin=pair).out.strip() in ("0-0 1-1", "0-1 1-0")
    (tmp_path / "test.tsv").write_text("two men are talking\tzwei Männer reden\n", encoding="utf-8")
    scored = well(
        "evaluate", out, "--source", tmp_path / "test.tsv", "--to", "de", "--metrics", "exact_match", "--json"
    )
    (score,) = json.loads(scored.out)["scores"]
    assert score["value"] == 100
    for command in (("look", out, "x"), ("align", out, "--source", tmp_path / "test.tsv")):
        wrong = jumok(*command, "--to", "deu")
        assert (wrong.code, "'deu' is not a language of this model" in wrong.err) == (1, True)


def test_requests_to_the_server_name_languages(m2m100: Original, tmp_path: Path) -> None:
    out = tmp_path / "imported"
    import_model(m2m100.folder, out, source="en", target="ko")
    with serving({"model": out}) as live:
        assert live.get("/api/models").json["models"][0]["tags"] == []
        body = {"text": "two men are talking"}
        korean, german, again = (
            live.post("/api/translate", body | to).json["translations"][0]["text"] for to in ({}, {"to": "de"}, {})
        )
        assert korean == again != german == "zwei Männer reden"
        refused = live.post("/api/translate", body | {"from": "english"})
        assert refused.status == 422
        assert refused.json["error"].startswith("'english' is not a language of this model")


def test_languages_are_no_tags(m2m100: Original, tmp_path: Path) -> None:
    translator = import_model(m2m100.folder, tmp_path / "out", source="en", target="de") and load(tmp_path / "out")
    assert translator.tags == []
    with pytest.raises(ArgumentError, match="--from and --to choose its languages"):
        translator.translate(["two men"], tag="de")


def test_a_model_without_languages_refuses_them(tmp_path: Path) -> None:
    wrong = jumok("translate", "--to", "de", stdin="three days ago\n")
    assert wrong.code == 1
    assert "no languages to choose from" in wrong.err


def without_languages(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({"language_codes": "m2m100"}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "vocab.json").write_text('{"</s>": 0, "<unk>": 7}'), ["ids of the vocabulary"]),
        (lambda folder: (folder / "sentencepiece.bpe.model").write_bytes(b"no model"), ["sentencepiece.bpe.model"]),
        (lambda folder: (folder / "sentencepiece.bpe.model").unlink(), ["sentencepiece.bpe.model", "missing"]),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "m2m_100"}'), ["damaged", "d_model"]),
        (lambda folder: (folder / "vocab.json").write_text(json.dumps(
            {name: id for id, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *map(str, range(999))])}
        )), ["another model"]),
        (without_languages, ["--from", "100 languages"]),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_whole_model_is_refused_in_one_line(
    m2m100: Original, tmp_path: Path, damage: Callable[[Path], object], words: list[str]
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(m2m100.folder, folder)
    damage(folder)
    with pytest.raises((DataError, ArgumentError)) as error:
        import_model(folder, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert not (tmp_path / "out").exists()
