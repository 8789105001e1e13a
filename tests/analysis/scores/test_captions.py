"""CIDEr-D and METEOR: numbers that pycocoevalcap 1.2 and nltk 3.10 gave for the same captions, and limits."""

import pytest

from jumok.analysis.scores.captions import caption_words, cider_d, meteor
from jumok.analysis.scores.metrics import score_outputs

OUTPUTS = [
    "a small red circle on the left",
    "two dogs are running over the grass",
    "a man on a horse",
    "the cat the cat on the the mat",
]
REFERENCES = [
    ["a red circle on the left", "a small red circle beside a blue square"],
    ["two dogs run over the green grass", "dogs running in a field", "two brown dogs are running"],
    ["a man rides a horse on the beach"],
    ["the the cat sat on the mat", "a cat is on a mat"],
]
CIDER = [5.538086485797839, 2.2562078967921497, 2.4658147862403053, 1.8486248620405246]
"""From CiderScorer(n=4, sigma=6.0) of pycocoevalcap, whose "CIDEr" is CIDEr-D."""
METEOR = [0.9653916211293262, 0.7211538461538461, 0.5792207792207792]
"""From meteor_score of nltk with no stemmer and no synonyms; it does not look for the fewest chunks of the fourth."""


def test_cider_d_is_that_of_the_reference_implementation():
    assert cider_d(OUTPUTS, REFERENCES) == pytest.approx(CIDER, rel=1e-12)


def test_meteor_is_that_of_nltk():
    scores = [meteor(output, wanted) for output, wanted in zip(OUTPUTS, REFERENCES, strict=True)]
    assert scores[:3] == pytest.approx(METEOR, rel=1e-12)


def test_meteor_aligns_repeated_words_in_the_fewest_chunks():
    # "the cat" and "on the" and "mat" in order: 3 chunks of 5 words of 5, and recall 5 of 6.
    wanted = (5 / 6) / (0.9 + 0.1 * 5 / 6) * (1 - 0.5 * (2 / 5) ** 3)
    assert meteor("the cat on the mat", ["the cat sat on the mat"]) == pytest.approx(wanted)


def test_case_and_punctuation_do_not_count():
    assert caption_words("A man's red Hat, on  the beach.") == ("a", "man's", "red", "hat", "on", "the", "beach")
    assert meteor("A red hat.", ["a red hat"]) == meteor("a red hat", ["A RED HAT!"]) > 0.98


def test_equal_captions_get_ten_and_captions_without_common_words_nothing():
    references = [["a red circle on the left"], ["two dogs run over grass"]]
    assert cider_d([texts[0] for texts in references], references) == pytest.approx([10, 10])
    assert cider_d(["two dogs", "a red"], references) == [0, 0]
    assert cider_d(["", ""], references) == [0, 0]
    assert meteor("", ["a red circle"]) == meteor("word", [""]) == 0


def test_they_stand_beside_bleu_with_intervals_and_signatures():
    bleu, cider, exact = score_outputs(OUTPUTS, REFERENCES, ["bleu", "cider", "meteor"])
    assert cider.name == "CIDEr-D"
    assert cider.value == pytest.approx(100 * sum(CIDER) / 4)
    assert cider.low <= cider.value <= cider.high
    assert "sigma:6" in cider.signature
    assert exact.name == "METEOR"
    assert "match:exact" in exact.signature
    assert bleu.name == "BLEU"
