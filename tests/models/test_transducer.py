"""The transducer: where it stands, its steps against teacher forcing, and copies against the equation."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from jumok.data.edit_distance import Edit
from jumok.data.edits import DELETE, edit_ids
from jumok.errors import ArgumentError, ConfigError
from jumok.models import TransducerConfig, TransducerDecoder, build_model
from jumok.models.encoder_decoder import Encoding
from jumok.models.rnn.encoder import RnnEncoderConfig
from jumok.models.rnn.transducer import advances, copying, edit_vocabulary
from support.decoders import check_beam, check_steps

PIECES, WIDTH, LENGTHS = 9, 6, [5, 2, 4]
VOCABULARY = edit_vocabulary(PIECES)
SETTINGS = [
    {},
    {"copy": True},
    {"context": True},
    {"cell": "gru", "layers": 2},
]
every_decoder = pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: "-".join(map(str, each)) or "plain")


def decoder(**settings):
    torch.manual_seed(0)
    config = TransducerConfig(width=7, embedding=5, dropout=0.0, **settings)
    return TransducerDecoder(config, vocabulary=VOCABULARY, encoder_width=WIDTH).double()


def encoding():
    torch.manual_seed(1)
    visible = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    states = torch.randn(3, max(LENGTHS), WIDTH).double().masked_fill(~visible[..., None], 0)
    return Encoding(states, visible, torch.randn(3, WIDTH).double(), torch.randint(3, PIECES, visible.shape))


def edits(length=6):
    torch.manual_seed(2)
    return torch.cat([torch.ones(3, 1, dtype=torch.long), torch.randint(4, VOCABULARY, (3, length - 1))], 1)


def test_numbers_of_edits_are_those_of_the_data():
    for piece in range(4, PIECES):
        (insert,), (substitute,) = edit_ids(Edit("insert", piece)), edit_ids(Edit("substitute", piece))
        assert advances(torch.tensor([insert, substitute, DELETE])).tolist() == [False, True, True]
        assert copying(torch.tensor(piece)) == substitute
        assert max(insert, substitute) < VOCABULARY
    assert not advances(torch.arange(4)).any()


def test_it_stands_at_the_letter_after_those_it_has_used_up_and_never_beyond_the_end():
    target = torch.tensor([[1, DELETE, 5, 6, DELETE, 8, 10, 7]] * 3)
    (layer,) = decoder().hidden(encoding(), target).attention
    places = [0, 1, 1, 2, 3, 4, 5, 5]
    for row, length in enumerate(LENGTHS):
        assert layer()[row, 0].argmax(-1).tolist() == [min(place, length - 1) for place in places]
    assert layer().sum(-1).eq(1).all()


@every_decoder
def test_step_by_step_equals_the_whole_target_at_once(settings):
    model, source, target = decoder(**settings), encoding(), edits()
    whole = check_steps(model, source, target)
    torch.testing.assert_close(model.logits(model.hidden_in_training(source, target)), whole.logits)


@every_decoder
def test_a_beam_that_is_reordered_and_loses_sentences_equals_each_hypothesis_on_its_own(settings):
    check_beam(decoder(**settings), encoding(), range(4, VOCABULARY))


@every_decoder
def test_padding_and_later_edits_change_nothing(settings):
    model, source, target = decoder(**settings), encoding(), edits()
    whole = model(source, target)
    for row, length in enumerate(LENGTHS):
        alone = Encoding(*(part[row : row + 1] for part in source))
        cut = Encoding(alone.states[:, :length], alone.visible[:, :length], alone.summary, alone.tokens[:, :length])
        torch.testing.assert_close(model(cut, target[row : row + 1, :3]).logits[0], whole.logits[row, :3])


def test_copying_adds_its_probability_to_the_substitution_by_the_letter_at_hand():
    model, source, target = decoder(copy=True), encoding(), edits()
    hidden = model.hidden(source, target)
    own = torch.sigmoid(hidden.copied.generate)[..., None]
    expected = own * model.output(hidden.states).softmax(-1)
    (layer,) = hidden.attention
    letters = source.tokens.gather(1, layer().squeeze(1).argmax(-1))
    for row, place in torch.ones_like(letters).nonzero().tolist():
        edit = copying(letters[row, place])
        expected[row, place, edit] += 1 - own[row, place, 0]
    torch.testing.assert_close(model.logits(hidden).exp(), expected)


def test_gradients_are_right():
    model, source, target = decoder(copy=True, context=True), encoding(), edits(4)

    def loss(states, summary):
        other = source._replace(states=states, summary=summary)
        return model(other, target).logits.log_softmax(-1).gather(-1, target[..., None]).sum()

    torch.autograd.gradcheck(loss, (source.states.requires_grad_(), source.summary.requires_grad_()))


@pytest.mark.parametrize("copy", [False, True])
def test_shapes_of_training_depend_on_no_value_so_that_a_gpu_can_record_them(copy):
    with FakeTensorMode():
        config = TransducerConfig(width=7, embedding=5, copy=copy)
        model = TransducerDecoder(config, vocabulary=VOCABULARY, encoder_width=WIDTH)
        source = Encoding(
            torch.zeros(3, 5, WIDTH),
            torch.ones(3, 5, dtype=torch.bool),
            torch.zeros(3, WIDTH),
            torch.zeros(3, 5).long(),
        )
        hidden = model.hidden_in_training(source, torch.zeros(3, 6).long())
        assert model.logits(hidden).shape == (3, 6, VOCABULARY)


def test_copies_need_a_shared_vocabulary_and_the_source():
    encoder, config = RnnEncoderConfig(width=6, embedding=5), TransducerConfig(width=7, embedding=5, copy=True)
    with pytest.raises(ConfigError, match=r"decoder.copy = true copies source tokens into the target"):
        build_model(encoder, config, source_vocabulary=PIECES, target_vocabulary=VOCABULARY)
    build_model(encoder, config, source_vocabulary=PIECES, target_vocabulary=VOCABULARY, shared_vocabulary=True)
    with pytest.raises(ArgumentError, match="a shared vocabulary has one size"):
        build_model(encoder, config, source_vocabulary=PIECES, target_vocabulary=PIECES, shared_vocabulary=True)
    with pytest.raises(ArgumentError, match="set copy = false"):
        decoder(copy=True).hidden(encoding()._replace(tokens=None), edits())
