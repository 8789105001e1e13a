"""What an evaluation report says: its numbers against counting by hand and sacrebleu, its page safe with any text."""

import math
import re
from html.parser import HTMLParser

import pytest
import sacrebleu
import torch
from sacrebleu.significance import PairedTest

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.attention_stats import attention_stats, coverage
from jumok.analysis.report.content import (
    EvaluationSet,
    System,
    differences,
    doubles_word,
    make_report,
    output_stats,
    repeats_phrase,
)
from jumok.analysis.report.page import marked_parts, report_page
from jumok.analysis.scores.metrics import count_outputs, paired_bootstrap, sentence_scores

NASTY = "<script>alert(1)</script> \"'><img src=x onerror=alert(1)>"
REFERENCES = [f"the {size} {animal} sat on a mat" for animal in ("cat", "dog", "cow", "hen") for size in ("big", "old")]
OUTPUTS = [text.replace("sat on", "sits at").replace("hen", "duck") for text in REFERENCES]
OTHERS = [text.replace("big", "large") for text in REFERENCES]


def map_of(*rows: list[float], heads: int = 1) -> AttentionMap:
    weights = torch.tensor(rows).expand(1, heads, len(rows), -1)
    return AttentionMap((*(f"s{at}" for at in range(len(rows[0]) - 1)), "</s>"), tuple("xyzw"[: len(rows)]), weights)


def test_coverage_is_all_the_attention_a_source_word_got():
    shown = map_of([0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0])
    assert coverage(shown).tolist() == [0.75, 1.25, 1.0]


def test_attention_is_averaged_over_words_and_uncovered_words_are_found():
    found = attention_stats([map_of([1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.1, 0.4]), map_of([0.5, 0.5, 0.0])])
    by_hand = (0 + 0 - (0.5 * math.log(0.5) + 0.1 * math.log(0.1) + 0.4 * math.log(0.4)) + math.log(2)) / 4
    assert found.entropy == pytest.approx(by_hand)
    assert found.heads == ((pytest.approx(by_hand),),)
    assert (found.little, found.much) == (1 / 4, 1 / 4)  # s1 with 0.1 and s0 with 2.5; the end is not a word
    assert sum(count for _, count in found.histogram) == 4
    assert [(one.word, one.times) for one in found.least + found.most] == [("s1", 2), ("s0", 2)]
    assert attention_stats([]) is None


def test_repetition_counts_only_beyond_what_source_and_reference_repeat():
    loop = "a b c and a b c again"
    assert repeats_phrase("x y z", loop, "a b c")
    assert not repeats_phrase("x y z x y z", loop, "a b c")
    assert not repeats_phrase("x y z", loop, loop)
    assert doubles_word("the the cat", "the cat")
    assert not doubles_word("the the cat", "so so")


def test_output_statistics_are_shares_of_all_outputs():
    found = output_stats(["s"] * 4, ["a b c d", "", "a a", "a b c d e f g h"], ["a b c d"] * 4)
    assert (found.short, found.long, found.empty, found.doubled, found.phrases) == (0.5, 0.25, 0.25, 0.25, 0.0)
    assert found.length_ratio == 14 / 16
    assert found.repeating == (2,)


def test_paired_tests_are_those_of_sacrebleu():
    systems = [("one", OUTPUTS), ("two", OTHERS), ("three", REFERENCES)]
    counted = [(name, count_outputs(texts, REFERENCES, ["bleu", "wer", "chrf", "ter"])) for name, texts in systems]
    found = paired_bootstrap(counted)
    metrics = {"BLEU": sacrebleu.BLEU(), "chrF": sacrebleu.CHRF(), "TER": sacrebleu.TER()}
    _, wanted = PairedTest(systems, metrics, [REFERENCES], test_type="bs", n_samples=1000)()
    assert [(one.score, one.other) for one in found] == [
        (score, other) for score in ("BLEU", "chrF", "TER") for other in ("two", "three")
    ]
    by_score = {"chrF": wanted["chrF2"], **wanted}
    for one in found:
        result = by_score[one.score][1 + ("two", "three").index(one.other)]
        assert (one.other_value, one.p) == (result.score, result.p_value)
        assert one.first_value == by_score[one.score][0].score


def test_a_system_beside_itself_shows_no_difference():
    counted = count_outputs(OUTPUTS, REFERENCES, ["bleu", "chrf", "ter"])
    assert [paired.p for paired in paired_bootstrap([("one", counted), ("same", counted)])] == [1.0, 1.0, 1.0]


def test_sentence_scores_are_sacrebleus():
    assert sentence_scores(count_outputs(OUTPUTS, REFERENCES, ["chrf"])["chrf"]) == [
        sacrebleu.sentence_chrf(output, [reference]).score
        for output, reference in zip(OUTPUTS, REFERENCES, strict=True)
    ]


def test_a_report_counts_nothing_in_texts_that_were_counted_before():
    names = ("bleu", "chrf", "ter")
    test, watched = EvaluationSet(["s"] * 8, REFERENCES, names), []

    def watch(items, verb, _total):
        watched.append(verb)
        return items

    whole = make_report(test, [System("one", OUTPUTS)], watch=watch)
    assert [verb for verb in watched if verb.startswith("scoring")] == [f"scoring {name}" for name in names]
    watched.clear()
    counts = count_outputs(OUTPUTS, REFERENCES, names)
    again = make_report(test, [System("one", OUTPUTS, counts=counts)], watch=watch)
    assert not [verb for verb in watched if verb.startswith("scoring")]
    assert report_page(again) == report_page(whole)


def test_differences_are_told_apart_by_who_is_better():
    better, worse = differences([10, 50, 70, 20], [40, 50, 60, 90], few=2)
    assert [(one.sentence, one.first, one.other) for one in better] == [(3, 20, 90), (0, 10, 40)]
    assert [one.sentence for one in worse] == [2]


def test_worst_and_best_sentences_are_those_of_the_first_system():
    outputs = list(REFERENCES)
    outputs[3], outputs[5] = "nothing of it", "the old cow sat on a rug"
    found = make_report(EvaluationSet(["s"] * 8, REFERENCES), [System("one", outputs)])
    assert found.worst == [3, 5]  # the others are perfect
    assert not set(found.worst) & set(found.best)
    assert len(found.best) == 4


def test_words_that_differ_from_the_reference_are_marked():
    assert marked_parts("the dog <b>", "the cat <b>") == [("the", False), ("dog", True), ("<b>", False)]
    assert marked_parts("", "the cat") == []


def test_a_megabyte_of_one_word_is_shown_without_comparing_all_with_all():
    assert marked_parts("<b> " * 250_000, "<b> " * 250_000 + "c") == [("<b> " * 250_000, False)]


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def page_of(systems, count=8, **options) -> str:
    test = EvaluationSet([f"source {at}" for at in range(count)], REFERENCES[:count], **options)
    return report_page(make_report(test, systems))


def test_nothing_that_a_user_wrote_becomes_markup():
    shown = AttentionMap((NASTY, "</s>"), (NASTY,), torch.tensor([[[[0.1, 0.9]]]]))
    systems = [
        System(NASTY, [f"{NASTY} {NASTY} {at}" for at in range(4)], lambda _: shown),
        System(f"{NASTY} 2", [f"{NASTY} x" for _ in range(4)], lambda _: shown),
    ]
    test = EvaluationSet([NASTY] * 4, [f"{NASTY} {at}" for at in range(4)], facts={NASTY: NASTY})
    text = report_page(make_report(test, systems))
    page = Page(text)
    assert not {"script", "img", "b"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(NASTY) > 20  # it is there, as text


def test_the_page_asks_for_nothing_from_elsewhere():
    page = Page(page_of([System("one", OUTPUTS, lambda _: map_of([0.5, 0.25, 0.25]))]))
    assert not [value for name, value in page.attributes if name in ("src", "href") and not value.startswith("#")]
    assert not re.search(r"url\(|@import", page.text)
    assert "script" not in page.tags


def test_no_two_things_on_the_page_have_the_same_id():
    systems = [
        System(name, outputs, lambda _: map_of([0.5, 0.5, 0.0])) for name, outputs in (("a", OUTPUTS), ("b", OTHERS))
    ]
    ids = [value for name, value in Page(page_of(systems)).attributes if name == "id"]
    assert len(ids) == len(set(ids)) == 6


def test_one_system_has_no_comparison_and_two_have():
    alone, both = (
        Page(page_of(systems))
        for systems in ([System("one", OUTPUTS)], [System("one", OUTPUTS), System("two", OTHERS)])
    )
    assert "Is the difference significant?" not in alone.text
    assert "Is the difference significant?" in both.text
    assert "two is better" in both.text


def test_a_system_without_attention_says_so():
    text = Page(page_of([System("one", OUTPUTS), System("two", OTHERS, lambda _: map_of([1.0, 0.0]))])).text
    assert "one has no attention to show" in text
    assert "two has no attention" not in text
    assert "attention entropy" in text


def test_scores_intervals_and_signatures_are_on_the_page():
    text = Page(page_of([System("one", OUTPUTS)], metrics=("bleu", "exact_match"))).text
    bleu = sacrebleu.BLEU()
    assert f"{bleu.corpus_score(OUTPUTS, [REFERENCES]).score:.2f}" in text
    assert "nrefs:1|bs:1000|seed:12345" in text
    assert "exact match by source length" in text


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_sentences_are_enough(count):
    text = Page(page_of([System("one", OUTPUTS[:count]), System("two", OUTPUTS[:count])], count)).text
    assert "No sentence is translated better by one of the systems" in text


def test_heads_are_told_apart_and_counted_from_0_where_there_are_several():
    text = Page(page_of([System("one", OUTPUTS, lambda _: map_of([0.5, 0.25, 0.25], heads=3))])).text
    assert all(name in text for name in ("layer 0", "head 0", "head 2"))
    assert "head 3" not in text
