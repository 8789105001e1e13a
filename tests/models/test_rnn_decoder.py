"""Recurrent decoders of every kind: steps against teacher forcing, and against torch.nn and the papers' equations."""

import pytest
import torch
from torch import nn

from jumok.layers import TokenEmbedding
from jumok.models.encoder_decoder import Encoding
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from support.decoders import check_beam, check_steps
from support.rnn_decoders import ALL, LENGTHS, LOOKS, VOCABULARY, decoder, encoder_width, encoding, name, targets

every_decoder = pytest.mark.parametrize("settings", ALL, ids=name)
every_look = pytest.mark.parametrize("settings", LOOKS, ids=name)


@every_decoder
def test_step_by_step_equals_the_whole_target_at_once(settings):
    whole = check_steps(decoder(**settings), encoding(encoder_width(settings)), targets())
    assert len(whole.attention) == (settings["attention"] != "none")


@every_decoder
def test_a_beam_that_is_reordered_and_loses_sentences_equals_each_hypothesis_on_its_own(settings):
    check_beam(decoder(**settings), encoding(encoder_width(settings)), range(VOCABULARY))


@every_look
def test_batch_and_padding_change_nothing(settings):
    model, source, target = decoder(**settings), encoding(encoder_width(settings)), targets()
    whole = model(source, target)
    for row, length in enumerate(LENGTHS):
        alone = Encoding(
            source.states[row : row + 1, :length],
            source.visible[row : row + 1, :length],
            source.summary[row : row + 1],
            source.tokens[row : row + 1, :length],
        )
        one = model(alone, target[row : row + 1, :3])
        torch.testing.assert_close(one.logits[0], whole.logits[row, :3])
        for mine, other in zip(one.attention, whole.attention, strict=True):
            torch.testing.assert_close(mine()[0], other()[row, :, :3, :length])
            assert other()[row, ..., length:].eq(0).all()


@every_look
def test_later_target_words_do_not_change_earlier_predictions(settings):
    model, source, target = decoder(**settings), encoding(encoder_width(settings)), targets()
    changed = target.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % VOCABULARY
    before, after = model(source, target).logits, model(source, changed).logits
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@every_decoder
def test_every_parameter_gets_a_gradient(settings):
    model, source = decoder(**settings), encoding(encoder_width(settings))
    states, summary = source.states.requires_grad_(), source.summary.requires_grad_()
    prediction = model(source, targets())
    loss = prediction.logits.log_softmax(-1)[..., 3].sum()
    (loss if prediction.penalty is None else loss + prediction.penalty.sum()).backward()
    without = [key for key, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert without == []
    assert summary.grad.abs().sum() > 0
    assert states.grad is None if settings["attention"] == "none" else states.grad.abs().sum() > 0


@every_look
def test_the_gradient_is_the_slope_of_the_loss(settings):
    model, source = decoder(cell="gru", **settings), encoding(encoder_width(settings))

    def loss(states, summary):
        prediction = model(source._replace(states=states, summary=summary), targets(length=3))
        return prediction.logits if prediction.penalty is None else (prediction.logits, prediction.penalty)

    torch.autograd.gradcheck(loss, (source.states.requires_grad_(), source.summary.requires_grad_()), fast_mode=True)


@every_look
def test_a_state_dict_brings_back_the_same_predictions(settings):
    first, source = decoder(**settings), encoding(encoder_width(settings))
    second = RnnDecoder(first.config, vocabulary=VOCABULARY, encoder_width=encoder_width(settings)).double()
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(source, targets()).logits, second(source, targets()).logits)


@every_look
def test_logits_of_the_visible_places_are_those_of_the_whole(settings):
    for copy in {False, settings["attention"] != "none"}:
        model, source = decoder(copy=copy, **settings), encoding(encoder_width(settings))
        target = targets()
        visible = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
        hidden = model.hidden(source, target)
        selected = hidden.select(visible.flatten().nonzero().flatten())
        torch.testing.assert_close(model.logits(selected), model(source, target).logits[visible])


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_fixed_context_is_torchs_recurrence_over_word_and_context(cell, layers):
    model, source, target = decoder(attention="none", cell=cell, layers=layers), encoding(), targets()
    theirs = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell](12, 6, layers, batch_first=True).double()
    theirs.load_state_dict(model.recurrence.rnn.state_dict())
    words, context = model.embedding(target), source.summary[:, None].expand(-1, 5, -1)
    first = torch.tanh(model.to_first(source.summary)).view(3, layers, -1, 6).permute(2, 1, 0, 3).contiguous()
    states, _ = theirs(torch.cat([words, context], -1), tuple(first) if cell == "lstm" else first[0])
    readout = torch.tanh(torch.cat([states, words, context], -1) @ model.to_readout.weight.T + model.to_readout.bias)
    torch.testing.assert_close(model(source, target).logits, model.output(readout))


def torch_cell(model: RnnDecoder) -> nn.Module:
    """The decoder's one cell, as torch.nn steps it."""
    kind = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[model.config.cell]
    cell = kind(model.recurrence.rnn.input_size, model.config.width).double()
    cell.load_state_dict({key.removesuffix("_l0"): weight for key, weight in model.recurrence.rnn.state_dict().items()})
    return cell


def test_additive_attention_is_the_equations_of_bahdanau():
    model, source, target = decoder(attention="additive", coverage=True), encoding(), targets()
    attention, cell, prediction = model.look.attention, torch_cell(model), model(source, target)
    for row, length in enumerate(LENGTHS):
        h = source.states[row, :length]
        s = torch.tanh(model.to_first(source.summary[row]))
        coverage = torch.zeros(length, dtype=torch.double)
        for place, token in enumerate(target[row]):
            y = model.embedding.table[token]
            e = torch.stack(
                [
                    attention.v
                    @ torch.tanh(
                        attention.to_query.weight @ s + attention.to_key.weight @ h[i] + attention.w * coverage[i]
                    )
                    for i in range(length)
                ]
            )
            alpha = e.exp() / e.exp().sum()
            c = sum(alpha[i] * h[i] for i in range(length))
            s = cell(torch.cat([y, c])[None], s[None])[0]
            t = torch.tanh(model.to_readout(torch.cat([s, y, c])))
            torch.testing.assert_close(prediction.logits[row, place], model.output(t))
            torch.testing.assert_close(prediction.attention[0]()[row, 0, place, :length], alpha)
            penalty = sum(min(alpha[i], coverage[i]) for i in range(length))
            torch.testing.assert_close(prediction.penalty[row, place], penalty)
            coverage = coverage + alpha


def test_without_coverage_additive_attention_is_the_same_with_w_zero():
    with_coverage, without = decoder(attention="additive", coverage=True), decoder(attention="additive")
    nn.init.zeros_(with_coverage.look.attention.w)
    without.load_state_dict(with_coverage.state_dict(), strict=False)
    source, target = encoding(), targets()
    torch.testing.assert_close(with_coverage(source, target).logits, without(source, target).logits)
    assert without(source, target).penalty is None


@pytest.mark.parametrize("feeding", [False, True])
def test_general_attention_is_the_equations_of_luong(feeding):
    model, source, target = decoder(attention="general", input_feeding=feeding), encoding(), targets()
    attention, cell, prediction = model.look.attention, torch_cell(model), model(source, target)
    for row, length in enumerate(LENGTHS):
        h = source.states[row, :length]
        s = torch.tanh(model.to_first(source.summary[row]))
        attentional = torch.zeros(6, dtype=torch.double)
        for place, token in enumerate(target[row]):
            y = model.embedding.table[token]
            s = cell((torch.cat([y, attentional]) if feeding else y)[None], s[None])[0]
            e = torch.stack([s @ attention.to_key.weight @ h[i] for i in range(length)])
            alpha = e.exp() / e.exp().sum()
            c = sum(alpha[i] * h[i] for i in range(length))
            attentional = torch.tanh(attention.to_state.weight @ torch.cat([c, s]))
            torch.testing.assert_close(prediction.logits[row, place], model.output(attentional))
            torch.testing.assert_close(prediction.attention[0]()[row, 0, place, :length], alpha)


def test_the_penalty_counts_as_much_as_asked_for():
    light, heavy = (decoder(attention="additive", coverage=True, coverage_weight=weight) for weight in (0.5, 2.0))
    source, target = encoding(), targets()
    torch.testing.assert_close(light(source, target).penalty * 4, heavy(source, target).penalty)


def test_beams_share_the_projected_keys_of_their_sentence():
    model = decoder(attention="additive")
    state = model.start(encoding(), capacity=3)
    _, state = model.step(state, torch.ones(3, 1, dtype=torch.long))
    wide = state.reorder(torch.zeros(3, 4, dtype=torch.long))
    assert wide.source is state.source
    assert model.step(wide, torch.ones(3, 4, dtype=torch.long))[1].source is state.source


@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_weights_can_be_asked_for_by_head_and_row(attention):
    model = decoder(attention=attention)
    weights = model(encoding(encoder_width(model.config.__dict__)), targets()).attention[0]
    assert weights().shape == (3, 1, 5, 6)
    torch.testing.assert_close(weights().sum(-1), torch.ones(3, 1, 5, dtype=torch.double))
    assert torch.equal(weights(heads=[0], rows=[3, -1]), weights()[:, :, [3, 4]])
    assert torch.equal(weights(rows=slice(1, 3)), weights()[:, :, 1:3])


def test_a_tied_output_is_the_embedding():
    tied = decoder(attention="additive", tied="output")
    assert tied.output.weight is tied.embedding.table
    fresh = RnnDecoder(RnnDecoderConfig(tied="output"), vocabulary=500, encoder_width=32)
    logits = fresh(Encoding(*(torch.randn(4, 6, 32), torch.ones(4, 6).bool(), torch.randn(4, 32))), targets(4)).logits
    assert logits.std() < 1  # no word is all but certain before anything was learned


def test_a_tied_output_takes_the_rows_as_they_are_and_the_embedding_takes_them_times_the_root_of_their_width():
    tied, other = decoder(attention="additive", tied="output"), decoder(attention="additive")
    width, weights = other.config.embedding, other.state_dict()
    tied.load_state_dict(weights | dict.fromkeys(["embedding.table", "output.weight"], weights["output.weight"]))
    with torch.no_grad():
        other.embedding.table.copy_(weights["output.weight"] * width**0.5)
    torch.testing.assert_close(tied.eval()(encoding(), targets()).logits, other.eval()(encoding(), targets()).logits)


def test_an_embedding_can_be_shared_or_pretrained():
    table = TokenEmbedding(vocabulary=9, width=5, vectors=torch.randn(9, 3))
    config = RnnDecoderConfig(width=6, embedding=5)
    model = RnnDecoder(config, vocabulary=9, encoder_width=7, embedding=table)
    assert model.embedding is table
    assert model(Encoding(*(part.float() if part.is_floating_point() else part for part in encoding())), targets())


def test_dropout_is_for_training_only():
    model, source = decoder(attention="additive", layers=2, dropout=0.5), encoding()
    assert not torch.equal(model(source, targets()).logits, model(source, targets()).logits)
    model.eval()
    assert torch.equal(model(source, targets()).logits, model(source, targets()).logits)
