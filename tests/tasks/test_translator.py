"""The translator: outputs in the order of the inputs, whatever the batches, and maps of where it looked."""

from random import Random

import pytest
import torch

import jumok
from jumok.data import BOS, Tokenizer, corpus_pairs
from jumok.errors import ArgumentError
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.translator import TrainedTranslator, Translator

DIGITS = ["12", "", "987654", "3", "   ", "00", "41414", "2718", "12"]


@pytest.fixture(scope="module", params=["reverser", "transformer"])
def translator(request):
    return TRANSLATION.load(request.getfixturevalue(request.param), device="cpu")


@pytest.fixture(scope="module")
def learned(reverser):
    return TRANSLATION.load(reverser, device="cpu")


def outcome(found):
    return [(one.source, one.text, pytest.approx(one.score, abs=1e-4)) for one in found]


def test_the_translator_is_a_name_of_the_package():
    assert jumok.Translator is Translator
    assert jumok.Translation.__name__ == "Translation"


def test_a_text_is_cut_into_tokens_once(learned, monkeypatch):
    encode, encoded = Tokenizer.encode, []
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: encoded.append(text) or encode(self, text))
    found = learned.translate(["123456", "", "987"])
    assert [one.warnings() for one in found] == [{}, {}, {}]
    assert [text for text in encoded if text] == ["123456", "987"]


def test_a_map_cuts_its_source_once_more_for_the_places_of_the_tokens(learned, monkeypatch):
    encode, trace, cuts = Tokenizer.encode, Tokenizer.pieces_with_offsets, []
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: cuts.append("encode") or encode(self, text))
    monkeypatch.setattr(Tokenizer, "pieces_with_offsets", lambda self, text: cuts.append("places") or trace(self, text))
    (found,) = learned.translate(["123456"])
    cuts.clear()
    found.attention()
    assert cuts == ["places"]
    cuts.clear()
    learned.attention("123456", "654321")
    assert cuts == ["encode", "encode", "places"]  # source, target; then the source


def test_what_was_learned_is_translated(learned):
    pairs = list(corpus_pairs("reverse", 50, split="test", longest=6))
    found = learned.translate([pair.source for pair in pairs])
    assert sum(one.text == pair.target for one, pair in zip(found, pairs, strict=True)) >= 45


@pytest.mark.slow
def test_outputs_come_in_the_order_of_the_inputs(translator):
    together = translator.translate(DIGITS)
    assert [one.source for one in together] == DIGITS
    assert outcome(one for text in DIGITS for one in translator.translate([text])) == outcome(together)


@pytest.mark.long
@pytest.mark.parametrize("beam", [1, 4])
def test_the_batch_size_never_changes_an_output(translator, beam):
    # A model that has learned nothing repeats itself, and engines break that off at different lengths.
    expected = outcome(translator.translate(DIGITS, beam=beam, engine="jumok"))
    for tokens in (1, 5, 20):
        few = Translator(translator.trained, batch_tokens=tokens)
        assert outcome(few.translate(DIGITS, beam=beam, engine="jumok")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_the_number_of_threads_never_changes_an_output(translator, beam):
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(outcome(translator.translate(DIGITS, beam=beam, engine="jumok")))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.long
def test_whatever_is_in_the_batch_translations_are_the_same_and_scores_to_the_fifth_decimal():
    bundled = TRANSLATION.load(BUNDLED, device="cpu")
    texts = [pair.source for pair in corpus_pairs("phrases", 24, split="test")]
    alone = {text: bundled.translate([text], n_best=3)[0] for text in texts}
    draws = Random(0)
    for size in (2, 5, 11, 24):
        for found in bundled.translate(draws.sample(texts, size), n_best=3):
            wanted = alone[found.source].n_best
            assert [one.text for one in found.n_best] == [one.text for one in wanted]
            assert [one.score for one in found.n_best] == pytest.approx([one.score for one in wanted], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_a_stream_gives_the_same_in_chunks(translator, chunk):
    assert outcome(translator.stream(iter(DIGITS), chunk=chunk)) == outcome(translator.translate(DIGITS))


def test_empty_texts_stay_empty(translator):
    for found in translator.translate(["", " \t ", "　"]):
        assert (found.text, found.score, found.n_best) == ("", 0.0, ())
    assert translator.translate([]) == []


@pytest.mark.parametrize("n_best", [2, 4])
def test_n_best_are_sorted_and_distinct_and_begin_with_the_best(translator, n_best):
    for found in translator.translate(["123", "9", "808080"], n_best=n_best, beam=4):
        assert 1 <= len(found.n_best) <= n_best
        scores = [one.score for one in found.n_best]
        assert scores == sorted(scores, reverse=True)
        assert len({one.text for one in found.n_best}) == len(found.n_best)
        assert (found.text, found.score) == (found.n_best[0].text, found.n_best[0].score)


LONG = "123456 654321 123456"


def test_a_text_much_longer_than_the_model_has_seen_is_translated_in_parts(learned):
    assert learned.longest == 7  # six digits and the mark before a word
    assert learned.trained.recipe.filter.max_length == 8
    (found,) = learned.translate([LONG])
    assert [part.source for part in found.pieces] == ["123456 ", "654321 ", "123456"]
    assert found.text == " ".join(one.text for one in learned.translate(["123456 ", "654321 ", "123456"]))


def test_every_part_of_a_long_text_has_its_map(learned):
    (found,) = learned.translate([LONG])
    with pytest.raises(ArgumentError, match=r"translated in 3 parts, .*attention_maps\(\)"):
        found.attention()
    maps = found.attention_maps(words=True)
    assert [shown.source for shown in maps] == [("123456", "</s>"), ("654321", "</s>"), ("123456", "</s>")]
    (alone,) = learned.translate(["654321 "])
    torch.testing.assert_close(maps[1].weights, alone.attention(words=True).weights)


def test_a_sentence_a_little_longer_than_any_in_training_is_translated_whole_with_a_warning(learned):
    (found,) = learned.translate(["123456 654321"])
    assert len(found.pieces) == 1
    assert found.attention(words=True).source == ("123456", "654321", "</s>")
    assert "14 tokens was translated whole, but the model was trained on at most 7" in found.warnings()["length"]
    assert learned.translate(["123456"])[0].warnings() == {}


def test_max_source_says_how_many_tokens_go_at_once(learned):
    (parts,) = learned.translate(["123456 654321"], max_source=7)
    assert [part.source for part in parts.pieces] == ["123456 ", "654321"]
    (smaller,) = learned.translate(["12 34"], max_source=3)
    assert [part.source for part in smaller.pieces] == ["12 ", "34"]
    (whole,) = learned.translate([LONG], max_source=100)
    assert [part.source for part in whole.pieces] == [LONG]
    assert len(learned.attention(LONG, "1", words=True, max_source=100).source) == 4
    with pytest.raises(ArgumentError, match="the text has 21 tokens, more than the 14 the model reads at once"):
        learned.attention(LONG, "1")


def test_spaces_around_a_word_that_is_too_long_are_not_translated(learned):
    for spaces in (" ", "  ", "\u3000"):
        (found,) = learned.translate([f"{spaces}123456123456"], max_source=7)
        assert [part.source for part in found.pieces] == ["123456", "123456"]
        assert found.text == learned.translate(["123456123456"], max_source=7)[0].text


def test_a_text_that_is_too_long_is_refused_if_it_must_not_be_split(learned):
    with pytest.raises(ArgumentError, match="text 2 has 21 tokens, more than the 7 the model was trained on"):
        learned.translate(["12", LONG], split=False)


def test_learned_positions_also_say_how_long_a_text_may_be(transformer):
    translator = TRANSLATION.load(transformer, device="cpu")
    translator.trained.model.encoder.limit = 5  # that of learned positions, the end of the text among them
    assert translator.longest == translator.limits().sentence == 4
    with pytest.raises(ArgumentError, match="max_source = 5, but the encoder has learned positions for 4 tokens only"):
        translator.translate(["12"], max_source=5)


def test_settings_of_decoding_can_be_given(learned):
    (short,) = learned.translate(["123456"], max_length=2)
    assert len(short.text) <= 2
    (longer,) = learned.translate(["1"], min_length=5)
    assert len(longer.pieces[0][1]) >= 5
    with pytest.raises(ArgumentError, match="beem is not a setting of decoding; did you mean beam"):
        learned.translate(["1"], beem=3)
    with pytest.raises(ArgumentError, match="the 3 best outputs are asked for, but the beam is only 2 wide"):
        learned.translate(["1"], beam=2, n_best=3)


def test_settings_that_allow_no_output_are_an_error_that_says_so(learned):
    with pytest.raises(ArgumentError, match=r"no output .* decoding\.min_length = 100 .* decoding\.no_repeat = 1"):
        learned.translate(["1"], min_length=100, no_repeat=1)


def steps_of(translator, found):
    """The weights [layer head target source] that each step of decoding looked with."""
    model, ((text, ids, *_),) = translator.trained.model, found.pieces
    source = torch.tensor([translator.trained.tokenizers.source.encode(text)[1:]])
    with torch.no_grad():
        state = model.decoder.start(model.encoder(source, torch.ones_like(source, dtype=torch.bool)), capacity=99)
        rows = []
        for token in (BOS, *ids):
            hidden, state = model.decoder.advance(state, torch.tensor([[token]]))
            rows.append(torch.stack([layer()[0] for layer in hidden.attention]))
    return torch.cat(rows, 2)


def test_a_map_has_the_weights_that_decoding_really_used(translator):
    (found,) = translator.translate(["271828"])
    tokens = found.attention(words=False)
    torch.testing.assert_close(tokens.weights, steps_of(translator, found))
    assert tokens.source == ("▁", *"271828", "</s>")
    assert tokens.target[-1] == "</s>"
    assert found.attention().source == tokens.source  # this model reads letters


def test_rows_of_a_map_sum_to_one_and_words_are_merged(translator):
    (found,) = translator.translate(["27 18"])
    tokens, words = found.attention(words=False), found.attention(words=True)
    for shown in (tokens, words):
        torch.testing.assert_close(shown.weights.sum(-1), torch.ones(shown.weights.shape[:-1]))
    assert words.source == ("27", "18", "</s>")
    assert words.target == (*found.text.split(), "</s>")
    # "▁27▁18" and its end: the first word is three tokens, the second three.
    torch.testing.assert_close(words.weights[:, :, -1, 0], tokens.weights[:, :, -1, :3].sum(-1))


def test_an_empty_text_has_no_map(learned):
    (empty,) = learned.translate([""])
    with pytest.raises(ArgumentError, match="an empty text"):
        empty.attention()


def test_a_model_without_attention_says_that_it_has_none(learned):
    half = {"kind": "rnn", "width": 8, "embedding": 6}
    recipe = make_recipe({"data": {"corpus": "reverse"}, "encoder": half, "decoder": half | {"attention": "none"}})
    tokenizers = learned.trained.tokenizers
    (found,) = Translator(TrainedTranslator(TRANSLATION.new_model(recipe, tokenizers), recipe, tokenizers)).translate(
        ["12"]
    )
    with pytest.raises(ArgumentError, match="this model has no attention"):
        found.attention()


@pytest.mark.slow
def test_how_far_a_long_text_is_can_be_followed(translator):
    heard = []
    slowly = Translator(translator.trained, batch_tokens=100)
    (found,) = slowly.stream(["12345 " * 200], tell=lambda numbers, share: heard.append((numbers, share)), beam=2)
    assert len(found.pieces) > 50
    assert len(heard) > 1
    assert {numbers for numbers, _ in heard} == {range(1, 2)}
    shares = [share for _, share in heard]
    assert shares == sorted(set(shares))
    assert shares[-1] == 1.0


def test_parts_of_several_texts_are_told_of_by_the_numbers_of_the_texts(translator):
    heard = []
    list(translator.stream(DIGITS, chunk=4, tell=lambda numbers, share: heard.append((numbers, share))))
    assert [numbers for numbers, share in heard if share == 1.0] == [range(1, 5), range(5, 9), range(9, 10)]
