"""The soft database: exact keys answer themselves, missing ones their nearest, vectors blend."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from jumok import SoftDatabase
from jumok.soft_database import ngrams

NAMES = {
    ("Zhang", "Aston"),
    ("Lipton", "Zachary"),
    ("Li", "Mu"),
    ("Smola", "Alex"),
    ("Hu", "Rachel"),
    ("Werness", "Brent"),
}


def cosine(one, other):
    """By hand, over all n-grams of both."""
    grams = sorted({*ngrams(one), *ngrams(other)})
    a, b = (np.array([ngrams(text)[gram] for gram in grams]) for text in (one, other))
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("pairs", [NAMES, dict(NAMES), list(NAMES), (pair for pair in NAMES)])
def test_a_key_that_is_there_answers_with_its_value(pairs):
    assert SoftDatabase(pairs)("Li").value == "Mu"


@pytest.mark.parametrize(
    ("query", "value"), [("Lipson", "Zachary"), ("Smol", "Alex"), ("WERNES", "Brent"), ("리", "Mu"), ("허", "Rachel")]
)
def test_a_missing_key_answers_with_its_nearest(query, value):
    answer = SoftDatabase(NAMES)(query)
    assert answer.value == value
    assert answer.weights[0][1] == value


def test_the_weights_are_a_softmax_of_the_cosines_largest_first():
    answer = SoftDatabase(NAMES, sharpness=7.0)("Lipson")
    keys = [key for key, _, _ in answer.weights]
    unnormalised = np.exp([7 * cosine("Lipson", key) for key in keys])
    np.testing.assert_allclose([weight for *_, weight in answer.weights], unnormalised / unnormalised.sum())
    assert list(unnormalised) == sorted(unnormalised, reverse=True)
    assert {(key, value) for key, value, _ in answer.weights} == NAMES


def test_hangul_syllables_compare_by_their_jamo():
    answer = SoftDatabase({"한국": "Korea", "독일": "Germany", "가나": "Ghana"})("항구")
    assert answer.value == "Korea"


def test_composed_and_decomposed_spellings_are_the_same_key():
    database = SoftDatabase({"한글": 1.0, "영어": 2.0})
    assert database("한글").weights == database("한글").weights
    assert cosine("café", "café") == pytest.approx(1)


def test_the_sharper_the_more_the_nearest_key_takes():
    soft, sharp = (SoftDatabase(NAMES, sharpness=sharpness)("Lipson").weights[0][2] for sharpness in (2.0, 30.0))
    assert soft < 0.5 < 0.99 < sharp


def test_a_query_that_resembles_nothing_weighs_all_keys_alike_and_says_so():
    answer = SoftDatabase(NAMES)("☃")
    assert [weight for *_, weight in answer.weights] == pytest.approx([1 / 6] * 6)
    assert "all keys resemble it equally" in str(answer)


def test_an_answer_prints_as_aligned_bars():
    assert str(SoftDatabase({"리": "무", "스몰라": "알렉스"}, sharpness=100.0)("리")).splitlines() == [
        "리 → 무",
        "리      무      100.0%  ████████████████████",
        "스몰라  알렉스    0.0%",
    ]


def test_a_long_answer_prints_its_ten_largest_weights():
    lines = str(SoftDatabase({str(number): number for number in range(30)})("7")).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "… and 20 more"


def test_numbers_and_vectors_come_back_blended():
    half = SoftDatabase([((0.0, 0.0), (1.0, 5.0)), ((1.0, 0.0), (2.0, 7.0))])((0.5, 3.0))
    torch.testing.assert_close(half.value, torch.tensor([1.5, 6.0], dtype=torch.float64))
    assert SoftDatabase({"a": 1, "b": 3})("c").value == pytest.approx(2.0)
    assert SoftDatabase({1: "one", 9: "nine"})(7).value == "nine"


def test_vectors_weigh_by_distance_or_by_any_score_of_attention():
    keys, query = np.random.default_rng(0).normal(size=(5, 3)), np.array([0.1, 0.2, 0.3])
    pairs = list(zip(keys, range(5), strict=True))
    near = np.exp(-4 * ((keys - query) ** 2).sum(1) / 2)
    assert SoftDatabase(pairs, sharpness=4.0)(query).value == pytest.approx(near @ range(5) / near.sum())
    match = np.exp(keys @ query)
    assert SoftDatabase(pairs, score="dot")(query).value == pytest.approx(match @ range(5) / match.sum())


def test_the_blend_is_differentiable_in_query_keys_and_values():
    parts = [torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    query = torch.randn(3, dtype=torch.float64, requires_grad=True)
    SoftDatabase(list(zip(*parts, strict=True)))(query).value.square().sum().backward()
    assert all(tensor.grad.abs().sum() > 0 for tensor in (*parts, query))


def test_many_keys_are_answered_without_a_table_of_all_ngrams():
    numbers = SoftDatabase({f"key number {number}": number for number in range(5000)}, sharpness=200.0)
    assert numbers("key number 4321").weights[0][:2] == ("key number 4321", 4321)


def test_importing_the_package_imports_no_torch():
    program = "import sys, jumok; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_query_out_of_every_kernels_reach_is_answered_by_the_nearest_key():
    database = SoftDatabase([([0.0], 10.0), ([1.0], 20.0)], score="boxcar")
    assert database([50.0]).value == 20.0
    assert database([50.0]).weights[0] == ([1.0], 20.0, 1.0)
