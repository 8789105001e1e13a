"""Hard attention: the sum over alignments and their posterior against all alignments, one by one."""

from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from jumok.errors import ArgumentError
from jumok.models import HardAttentionConfig, HardAttentionDecoder
from jumok.models.encoder_decoder import Encoding
from support.decoders import check_beam, check_steps

VOCABULARY, WIDTH, LENGTHS = 7, 6, [4, 1, 3]
SETTINGS = [
    {},
    {"order": 0},
    {"copy": True},
    {"cell": "gru", "layers": 2, "jumps": 1},
    {"order": 0, "copy": True},
    {"context": True},
]
every_decoder = pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: "-".join(map(str, each)) or "plain")


def decoder(**settings):
    torch.manual_seed(0)
    config = HardAttentionConfig(width=5, embedding=4, dropout=0.0, **settings)
    model = HardAttentionDecoder(config, vocabulary=VOCABULARY, encoder_width=WIDTH).double()
    for weight in model.parameters():  # scores far from uniform
        torch.nn.init.normal_(weight)
    return model


def encoding():
    torch.manual_seed(1)
    visible = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    states = torch.randn(3, max(LENGTHS), WIDTH).double().masked_fill(~visible[..., None], 0)
    return Encoding(states, visible, torch.randn(3, WIDTH).double(), torch.randint(VOCABULARY, visible.shape))


def words(length=4):
    torch.manual_seed(2)
    return torch.cat([torch.ones(3, 1, dtype=torch.long), torch.randint(VOCABULARY, (3, length - 1))], 1)


def equations(model, source, row, target):
    """p(i | j) [target, from, to] and p(word | i) [target, source, vocabulary], straight from the docstring."""
    h = source.states[row, : LENGTHS[row]]
    embedded = model.embedding(target[None])
    first = torch.tanh(model.to_first(source.summary[row]))
    first = first.view(model.config.layers, model.recurrence.parts, model.config.width)
    initial = tuple(part[:, None].contiguous() for part in first.unbind(1))
    s = model.recurrence.rnn(embedded, initial if len(initial) == 2 else initial[0])[0][0]
    size, steps = len(h), len(target)
    moves, emits = torch.zeros(steps, size, size).double(), torch.zeros(steps, size, VOCABULARY).double()
    for t in range(steps):
        match = h @ model.to_query(s[t])
        for j in range(size):
            scores = match.clone()
            if model.config.order:
                jumps = model.to_jumps(s[t])
                scores = torch.stack([match[i] + jumps[min(i - j, model.config.jumps)] for i in range(j, size)])
                moves[t, j, j:] = scores.softmax(0)
            else:
                moves[t, j] = scores.softmax(0)
        for i in range(size):
            features = [s[t], embedded[0, t]]
            if model.context is not None:
                features.append((h @ model.context.to_query(s[t]) * WIDTH**-0.5).softmax(0) @ h)
            readout = (model.from_state(torch.cat(features)) + model.from_source(h[i])).tanh()
            emits[t, i] = model.output(readout).softmax(0)
            if model.to_generate is not None:
                own = model.to_generate(readout).sigmoid()
                emits[t, i] *= own
                emits[t, i, source.tokens[row, i]] += 1 - own.squeeze()
    return moves, emits


def alignments(moves, emits, target):
    """The probability of the words after the first along every alignment of all steps but the last."""
    steps, size = len(target) - 1, moves.shape[1]
    for alignment in product(range(size), repeat=steps):
        weight, before = torch.tensor(1.0).double(), 0
        for t, i in enumerate(alignment):
            weight = weight * moves[t, before, i] * emits[t, i, target[t + 1]]
            before = i
        yield alignment, weight


@every_decoder
def test_the_likelihood_is_the_sum_over_all_alignments(settings):
    model, source, target = decoder(**settings), encoding(), words()
    log_p = model(source, target).logits
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3, 4).double())
    for row in range(3):
        total = sum(weight for _, weight in alignments(*equations(model, source, row, target[row]), target[row]))
        mine = log_p[row, :-1].gather(-1, target[row, 1:, None]).sum()
        torch.testing.assert_close(mine, total.log())


@every_decoder
def test_the_map_is_the_posterior_of_the_alignments(settings):
    model, source, target = decoder(**settings), encoding(), words()
    (layer,) = model.source_attention(source, target)
    for row in range(3):
        expected = torch.zeros(3, LENGTHS[row]).double()
        for alignment, weight in alignments(*equations(model, source, row, target[row]), target[row]):
            for t, i in enumerate(alignment):
                expected[t, i] += weight
        expected /= expected.sum(-1, keepdim=True)
        torch.testing.assert_close(layer()[row, 0, :3, : LENGTHS[row]], expected)
        assert layer()[row, 0, :, LENGTHS[row] :].eq(0).all()
    torch.testing.assert_close(layer()[:, :, -1], model.hidden(source, target).attention[0]()[:, :, -1])


@every_decoder
def test_step_by_step_equals_the_whole_target_at_once(settings):
    whole = check_steps(decoder(**settings), encoding(), words())
    torch.testing.assert_close(whole.logits.exp().sum(-1), torch.ones(3, 4).double())


@every_decoder
def test_a_beam_that_is_reordered_and_loses_sentences_equals_each_hypothesis_on_its_own(settings):
    check_beam(decoder(**settings), encoding(), range(VOCABULARY))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"copy": True}, {"order": 0}], ids=["order 1", "order 0"])
def test_gradients_are_right(settings):
    model, source, target = decoder(**settings), encoding(), words()

    def loss(states, summary):
        other = source._replace(states=states, summary=summary)
        (layer,) = model.source_attention(other, target)
        return model(other, target).logits[:, :, :3], layer()

    inputs = (source.states.requires_grad_(), source.summary.requires_grad_())
    torch.autograd.gradcheck(loss, inputs)
    model(source, target).logits[..., 2].sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


def test_an_alignment_never_goes_back():
    model, source, target = decoder(), encoding(), words()
    (layer,) = model.source_attention(source, target)
    weights = layer()[0, 0]
    reached = weights.flip(-1).cumsum(-1).flip(-1)  # p(a(t) ≥ i) only grows
    assert (reached[1:] - reached[:-1]).min() > -1e-9


@pytest.mark.parametrize("copy", [False, True])
def test_shapes_of_training_depend_on_no_value_so_that_a_gpu_can_record_them(copy):
    with FakeTensorMode():
        config = HardAttentionConfig(width=5, embedding=4, copy=copy)
        model = HardAttentionDecoder(config, vocabulary=VOCABULARY, encoder_width=WIDTH)
        seen = torch.ones(3, 5, dtype=torch.bool)
        source = Encoding(torch.zeros(3, 5, WIDTH), seen, torch.zeros(3, WIDTH), torch.zeros(3, 5).long())
        assert model.hidden_in_training(source, torch.zeros(3, 6).long()).states.shape == (3, 6, VOCABULARY)


def test_copies_need_the_source():
    with pytest.raises(ArgumentError, match="set copy = false"):
        decoder(copy=True).hidden(encoding()._replace(tokens=None), words())
