"""Samples follow the model's distribution, and those of a line depend on the seed and the line alone."""

from collections import Counter

import numpy as np
import pytest
import torch

from jumok.decoding import DecodingConfig, Specials
from jumok.decoding.sampling import draw_tokens, sample_outputs, uniform_draws
from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import Encoding
from support.languages import AnyLanguage

SPECIALS = Specials(pad=0, bos=1, eos=2)


def encoding_of(names):
    states = torch.zeros(len(names), 2, 1)
    return Encoding(
        states, torch.ones(len(names), 2, dtype=torch.bool), torch.tensor(names, dtype=torch.float)[:, None]
    )


def sampled(names, lines, **settings):
    config = DecodingConfig(**{"samples": 3, "max_length": 4} | settings)
    return sample_outputs(AnyLanguage(6), encoding_of(names), SPECIALS, config, lines)


def test_samples_of_a_line_do_not_depend_on_its_batch():
    lines = [(1, 0), (2, 0), (3, 1)]
    together = sampled([5, 6, 7], lines)
    alone = [sampled([name], [line])[0] for name, line in zip([5, 6, 7], lines, strict=True)]
    assert [[each.ids for each in line] for line in together] == [[each.ids for each in line] for line in alone]
    assert together != sampled([5, 6, 7], lines, seed=2)


def test_a_sample_has_the_models_log_probability_and_ends_in_time():
    language = AnyLanguage(6)
    for output in sampled([5], [(1, 0)], samples=20, length_penalty=0.0)[0]:
        prefix, total = [SPECIALS.bos], 0.0
        assert len(output.ids) <= 4
        for token in [*output.ids, SPECIALS.eos]:
            total += float(language.next_token(5, prefix)[token])
            prefix.append(token)
        assert output.score == pytest.approx(total, abs=1e-5)


def test_samples_follow_the_distribution():
    outputs = sampled([5], [(1, 0)], samples=1000, max_length=1)[0]
    first = AnyLanguage(6).next_token(5, [SPECIALS.bos]).exp()
    counts = Counter(output.ids[0] if output.ids else SPECIALS.eos for output in outputs)
    for token in range(6):
        assert counts[token] / 1000 == pytest.approx(float(first[token]), abs=0.06)


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({}, [0.5, 0.3, 0.2]),
        ({"temperature": 0.5}, [0.25, 0.09, 0.04]),
        ({"top_k": 2}, [0.5, 0.3, 0]),
        ({"top_p": 0.5}, [0.5, 0, 0]),
        ({"top_p": 0.51}, [0.5, 0.3, 0]),
        ({"top_k": 1, "top_p": 0.9}, [0.5, 0, 0]),
    ],
)
def test_temperature_top_k_and_top_p_shape_what_is_drawn_from(settings, want):
    log_probs = torch.tensor([0.3, 0.5, 0.2]).log().expand(1, 4000, 3)
    draws = torch.from_numpy(uniform_draws(1, [(1, 0)], 4000, 1))[:, :, 0]
    tokens = draw_tokens(log_probs, draws, DecodingConfig(samples=1, **settings))
    found = np.bincount(tokens.flatten().numpy(), minlength=3)[[1, 0, 2]] / 4000
    np.testing.assert_allclose(found, np.array(want) / sum(want), atol=0.03)


def test_sampling_stops_where_it_is_checked():
    def check():
        raise ArgumentError("stop")

    with pytest.raises(ArgumentError, match="stop"):
        sample_outputs(AnyLanguage(6), encoding_of([5]), SPECIALS, DecodingConfig(samples=1), [(1, 0)], check)


def test_the_unknown_token_is_never_drawn():
    config = DecodingConfig(samples=200, max_length=4, temperature=3.0)
    (outputs,) = sample_outputs(AnyLanguage(6), encoding_of([5]), SPECIALS._replace(unk=3), config, [(1, 0)])
    assert outputs
    assert not any(3 in output.ids for output in outputs)
