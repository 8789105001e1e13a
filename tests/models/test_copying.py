"""The mixture of vocabulary and copied words against a loop over the equation."""

import pytest
import torch

from jumok.models.copying import log_mixture, merged
from jumok.models.encoder_decoder import Copied
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderConfig
from support.rnn_decoders import ENCODER_WIDTH, VOCABULARY, decoder, encoding, targets


def test_the_mixture_is_equation_9_of_see_et_al():
    torch.manual_seed(0)
    logits, generate = torch.randn(2, 3, 7, dtype=torch.double), torch.randn(2, 3, dtype=torch.double)
    weights = torch.randn(2, 3, 4, dtype=torch.double).softmax(-1)
    tokens = torch.tensor([[5, 2, 5, 5], [1, 0, 0, 6]])
    copied = Copied(tokens[:, None].expand(-1, 3, -1), merged(weights, tokens), generate)
    mixed = log_mixture(logits, copied).exp()
    for row in range(2):
        for place in range(3):
            p_gen = generate[row, place].sigmoid()
            want = p_gen * logits[row, place].softmax(-1)
            for token, weight in zip(tokens[row], weights[row, place], strict=True):
                want[token] += (1 - p_gen) * weight
            torch.testing.assert_close(mixed[row, place], want)
    torch.testing.assert_close(mixed.sum(-1), torch.ones(2, 3, dtype=torch.double))


def test_its_gradient_is_its_slope_with_repeated_words():
    tokens = torch.tensor([[3, 1, 3]])

    def mixture(logits, scores, generate):
        weights = merged(scores.softmax(-1), tokens)
        return log_mixture(logits, Copied(tokens[:, None].expand(-1, 2, -1), weights, generate))

    torch.manual_seed(0)
    shapes = [(1, 2, 5), (1, 2, 3), (1, 2)]
    torch.autograd.gradcheck(mixture, [torch.randn(*s, dtype=torch.double, requires_grad=True) for s in shapes])


def test_words_that_are_all_but_impossible_stay_finite_in_value_and_gradient():
    logits = torch.tensor([[500.0, -500.0, 0.0]], requires_grad=True)
    weights, generate = torch.tensor([[0.0, 1.0]], requires_grad=True), torch.tensor([90.0], requires_grad=True)
    mixed = log_mixture(logits, Copied(torch.tensor([[0, 2]]), weights, generate))
    assert mixed.isfinite().all()
    mixed.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (logits, weights, generate))


def test_every_decoder_that_copies_gives_probabilities_that_sum_to_1():
    for settings in (
        {"attention": "additive"},
        {"attention": "additive", "coverage": True},
        {"attention": "general", "reach": "local-p"},
        {"attention": "concat", "input_feeding": True},
    ):
        probabilities = decoder(copy=True, **settings)(encoding(), targets()).logits.exp()
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, 5, dtype=torch.double))


def transformer(**settings) -> TransformerDecoder:
    """A small Transformer decoder that copies, with weights large enough to matter."""
    torch.manual_seed(0)
    config = TransformerDecoderConfig(width=8, heads=2, hidden=12, layers=2, dropout=0.0, copy=True, **settings)
    model = TransformerDecoder(config, vocabulary=VOCABULARY, encoder_width=ENCODER_WIDTH)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


@pytest.mark.parametrize("settings", [{}, {"norm": "post"}, {"tied": "none", "positions": "rotary"}], ids=str)
def test_a_transformer_copies_by_an_attention_of_its_own(settings):
    model, source = transformer(**settings), encoding()
    probabilities = model(source, targets()).logits.exp()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, 5, dtype=torch.double))
    # The equation in a loop, from the states that the output layer reads.
    states, pointer = model.hidden(source, targets()).states, model.copying
    for row, length in enumerate(source.visible.sum(1).tolist()):
        keys = pointer.to_key(source.states[row, :length])
        for place in range(5):
            state = states[row, place]
            weights = (keys @ pointer.to_query(state) / 8**0.5).softmax(0)
            p_gen = pointer.gate.to_generate(torch.cat([state, weights @ keys])).sigmoid().squeeze()
            want = p_gen * model.output(state).softmax(-1)
            for token, weight in zip(source.tokens[row, :length], weights, strict=True):
                want[token] += (1 - p_gen) * weight
            torch.testing.assert_close(probabilities[row, place], want)


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_a_decoder_that_only_copies_writes_words_of_the_source(kind):
    model = decoder(attention="additive", copy=True) if kind == "rnn" else transformer()
    gate = model.copying if kind == "rnn" else model.copying.gate
    torch.nn.init.constant_(gate.to_generate.bias, -100.0)
    source = encoding()
    best = model(source, targets()).logits.argmax(-1)
    for row, visible in enumerate(source.visible):
        assert set(best[row].tolist()) <= set(source.tokens[row, visible].tolist())


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_an_empty_source_leaves_everything_to_the_vocabulary(kind):
    source = encoding()
    source.visible[1] = False
    model = decoder(attention="additive", copy=True) if kind == "rnn" else transformer()
    logits = model(source, targets()).logits
    torch.testing.assert_close(logits[1], model.output(model.hidden(source, targets()).states[1]).log_softmax(-1))
