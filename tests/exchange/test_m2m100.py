"""M2M-100 and NLLB models of Hugging Face, imported: they write what `transformers` writes, token for token."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from jumok.data.dataset import write_dataset
from jumok.decoding.config import DecodingConfig
from jumok.decoding.ctranslate2_engine import CTranslate2Engine
from jumok.errors import ArgumentError
from jumok.exchange.convert import import_model
from jumok.tasks import load
from jumok.tasks.inspect import inspect
from jumok.tasks.translator import Translator
from support.commands import jumok, well
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
from support.serving import serving, visits

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

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


LINES = [text for pair in PAIRS for text in pair]


def m2m100_tokenizer(folder: Path) -> Any:
    pieces = save_sentencepiece(LINES, folder / "sentencepiece.bpe.model", "bpe", 110)
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces[:-2]]  # two pieces that the vocabulary lacks
    (folder / "vocab.json").write_text(json.dumps({name: id for id, name in enumerate(names)}))
    tokenizer = transformers.M2M100Tokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), src_lang="en", tgt_lang="de"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def nllb_tokenizer(folder: Path) -> Any:
    save_sentencepiece(LINES, folder / "sentencepiece.bpe.model", "bpe", 110)
    tokenizer = transformers.NllbTokenizer.from_pretrained(
        folder, extra_special_tokens=["deu_Latn", "eng_Latn", "kor_Hang"], src_lang="eng_Latn", tgt_lang="deu_Latn"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_original(folder: Path, *, nllb: bool = False, keep_pieces: bool = True, **settings: Any) -> Original:
    """A small model that has learned a few sentences, so that its outputs end, saved by `transformers`."""
    folder.mkdir()
    tokenizer = nllb_tokenizer(folder) if nllb else m2m100_tokenizer(folder)
    if not keep_pieces:
        (folder / "sentencepiece.bpe.model").unlink()
    codes = ("eng_Latn", "deu_Latn", "kor_Hang") if nllb else ("en", "de", "ko")
    size = len(tokenizer) if nllb else tokenizer.encoder_size + 100 + tokenizer.num_madeup_words
    torch.manual_seed(0)
    config = transformers.M2M100Config(vocab_size=size, **SHAPE | settings)
    model = transformers.M2M100ForConditionalGeneration(config)
    tokenizer.src_lang, tokenizer.tgt_lang = codes[0], codes[1]
    learn(model, tokenizer, 90)
    model.save_pretrained(folder)
    return Original(folder, model.eval(), tokenizer, codes)


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


@pytest.mark.parametrize("beam", [1, 5])
def test_an_imported_model_writes_the_tokens_that_transformers_writes(
    original: Original, imported: Translator, beam: int
) -> None:
    english, german, korean = original.codes
    for source, target, least in ((english, german, 2), (german, korean, 0)):
        translator = imported.between(source, target)
        assert translator.languages == (source, target)
        wanted = {text: original.pieces(text, beam, source, target) for text in TEXTS}
        assert all(pieces[0] == f">>{target}<<" for pieces in wanted.values())
        assert_writes(translator, wanted, beam, least=least)
        assert not any(f">>{target}<<" in output.text for output in translator.translate(TEXTS, beam=beam))


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
    # Into Korean, which it has not learned, it would often rather write nothing.
    for source, target in ((english, german), (german, korean)):
        translator = imported.between(source, target)
        ours, theirs = (translator.translate(texts, engine=name, **settings) for name in ("jumok", "ctranslate2"))
        assert [output.pieces for output in theirs] == [output.pieces for output in ours]
        assert [output.score for output in theirs] == pytest.approx([output.score for output in ours], abs=1e-4)
        assert "float32" in translator.engines.made


def test_the_engine_translates_most_sentences_into_a_language_that_was_learned(
    original: Original, imported: Translator
) -> None:
    pytest.importorskip("ctranslate2")
    imported.translate(TEXTS)
    engine = imported.engines.made["float32"][1]
    assert isinstance(engine, CTranslate2Engine)
    sources = [imported.trained.tokenizers.source.encode(text)[1:] for text, _ in PAIRS]
    for beam in (1, 5):
        found = engine.search(sources, DecodingConfig(beam=beam), 1, imported.trained.model.decoder.limit)
        assert sum(hypotheses is not None for hypotheses in found) >= len(PAIRS) // 2


def test_a_shortlist_serves_the_languages_it_was_made_for(m2m100: Original, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "imported"
    import_model(m2m100.folder, folder)
    translator = load(folder, device="cpu")
    source, target = translator.trained.tokenizers
    rows = [[source.encode(text), target.encode(translation)] for text, translation in PAIRS]
    (folder / "data").mkdir()
    write_dataset(folder / "data/train.store", rows, size=source.size)
    for languages, expected in ((("en", "de"), True), (("en", "ko"), False), (("ko", "de"), False)):
        between = translator.between(*languages)
        assert between.translate(["two men are talking"], precision="int8")[0].text
        assert (between.engines.made["int8"][1].shortlist is not None) == expected


def test_an_imported_tokenizer_cuts_texts_as_transformers_does(original: Original, imported: Translator) -> None:
    tokenizer = imported.trained.tokenizers.source
    original.tokenizer.src_lang = original.codes[0]
    for text in TEXTS:
        ours = [tokenizer.pieces[id] for id in tokenizer.encode(text)[1:]]
        theirs = original.tokenizer.convert_ids_to_tokens(original.tokenizer(text).input_ids)
        assert ours == [f">>{theirs[0].strip('_')}<<", *theirs[1:]], text


@pytest.mark.long
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
    assert "; did you mean de? the model knows 100 languages" in wrong.err
    looked = [json.loads(well("look", out, text.strip(), "--json", *to).out)["text"] for to in ((), ("--to", "de"))]
    assert looked[0] != looked[1] == "zwei Männer reden"
    pair = "two men ||| zwei Männer\n"
    for options in ((), ("--from", "en", "--to", "de")):
        assert well("align", out, "--source", "-", *options, stdin=pair).out.strip().strip("01- ") == ""
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
        (model,) = live.get("/api/models").json["models"]
        assert model["tags"] == []
        assert (model["source_language"], model["target_language"]) == ("en", "ko")
        assert len(model["source_languages"]) == len(model["target_languages"]) == 100
        body = {"text": "two men are talking"}
        korean, german, again = (
            live.post("/api/translate", body | to).json["translations"][0]["text"] for to in ({}, {"to": "de"}, {})
        )
        assert korean == again != german == "zwei Männer reden"
        streamed = live.post("/api/stream", body | {"to": "de"}).text
        assert '"text": "zwei Männer reden"' in streamed.rpartition("event: done")[2]
        assert live.post("/api/beam", body | {"to": "de"}).json["text"] == "zwei Männer reden"
        shown = live.post("/api/attention", body | {"from": "ko", "to": "de"}).json
        assert (shown["source"][0], shown["target"][0]) == (">>ko<<", ">>de<<")
        assert "→ zwei Männer reden" in live.post("/api/page", body | {"to": "de"}).text
        pair = {"source": "two men", "target": "zwei Männer", "from": "en", "to": "de"}
        assert live.post("/api/align", pair).json["target"] == ["zwei", "Männer"]
        refused = live.post("/api/translate", body | {"from": "english"})
        assert refused.status == 422
        assert refused.json["error"].startswith("'english' is not a language of this model")


@pytest.mark.long
def test_the_page_offers_the_languages_of_a_model_and_sends_the_chosen_ones(
    m2m100: Original, reverser: Path, tmp_path: Path, browser: Any
) -> None:
    expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
    import_model(m2m100.folder, tmp_path / "m2m100", source="en", target="ko")
    folders = {"m2m100": tmp_path / "m2m100", "reverser": reverser}
    with serving(folders) as live, visits(browser, live, model="reverser") as visit:
        page = visit()
        expect(page.locator("#from-choice")).to_be_hidden()
        expect(page.locator("#to-choice")).to_be_hidden()
        page.select_option("#model", "m2m100")
        assert (page.input_value("#from"), page.input_value("#to")) == ("en", "ko")
        assert page.locator("#to option").count() == 100
        page.fill("#text", "two men are talking")
        expect(page.locator("#map .jumok-cell").first).to_be_visible()
        with page.expect_request("**/api/stream") as translated, page.expect_request("**/api/attention") as mapped:
            page.select_option("#to", "de")
        for request in (translated.value, mapped.value):
            assert "from" not in request.post_data_json
            assert request.post_data_json["to"] == "de"
        expect(page.locator("#output")).to_have_text("zwei Männer reden")
        expect(page.locator("#output .word[tabindex='0']")).to_have_text("zwei")  # the keyboard reaches the words
        assert "to=de" in page.url
        page.reload()
        expect(page.locator("#output")).to_have_text("zwei Männer reden")


def test_the_language_in_front_of_a_text_is_a_word_of_its_own_in_maps(m2m100: Original, tmp_path: Path) -> None:
    translator = imported_translator(m2m100.folder, tmp_path / "out", source="en", target="de")
    text, output = "two men are talking", "zwei Männer reden"
    words, tokens = (translator.attention(text, output, words=words) for words in (True, False))
    assert words.source == (">>en<<", *text.split(), "</s>")
    assert words.target == (">>de<<", *output.split(), "</s>")
    assert tokens.source[0] == ">>en<<"
    assert torch.equal(words.weights[:, :, 0, 0], tokens.weights[:, :, 0, 0])
    for typed in (">>ko<<two men are talking", ">>ko<< two men are talking"):
        read = translator.attention(typed, output, kind="encoder").source
        assert read == (">>ko<<", *text.split(), "</s>")


def test_languages_are_no_tags(m2m100: Original, tmp_path: Path) -> None:
    translator = import_model(m2m100.folder, tmp_path / "out", source="en", target="de") and load(tmp_path / "out")
    assert translator.tags == []
    with pytest.raises(ArgumentError, match="--from and --to choose its languages"):
        translator.translate(["two men"], tag="de")


def test_inspect_shows_the_chosen_languages_and_a_warning_of_an_unknown_one_lists_languages(
    m2m100: Original, tmp_path: Path
) -> None:
    translator = imported_translator(m2m100.folder, tmp_path / "out", source="en", target="ko")
    facts = inspect(tmp_path / "out").facts
    assert facts["languages"] == "from en to ko; it knows 100, and --from and --to choose others"
    (output,) = translator.translate([">>xyz<< two men"])
    wanted = "the model has no language >>xyz<<, so it was translated as text; its languages are af, am, "
    assert output.warnings()["tag"].startswith(wanted)


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
        (without_languages, ["100 languages: af, am, ar, ast, az, …", "--from af --to am"]),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_whole_model_is_refused_in_one_line(
    m2m100: Original, tmp_path: Path, damage: Callable[[Path], object], words: list[str]
) -> None:
    assert_refused(m2m100.folder, tmp_path, damage, words)
