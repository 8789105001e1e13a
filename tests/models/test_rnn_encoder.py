"""The recurrent encoder against torch.nn, sentence by sentence and without padding."""

import pytest
import torch
from torch import nn

from jumok.layers import TokenEmbedding
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = [5, 2, 7, 1]


def encoder(**settings) -> RnnEncoder:
    torch.manual_seed(0)
    config = RnnEncoderConfig(**({"width": 6, "embedding": 4, "dropout": 0.0} | settings))
    return RnnEncoder(config, vocabulary=11).double()


def batch(lengths=LENGTHS, extra=0):
    torch.manual_seed(1)
    source = torch.randint(11, (len(lengths), max(lengths) + extra))
    return source, torch.arange(source.shape[1]) < torch.tensor(lengths)[:, None]


def torch_twin(mine: RnnEncoder):
    """One module of torch.nn with the same weights."""
    config = mine.config
    theirs = TORCH[config.cell](
        config.embedding,
        config.width // (1 + config.bidirectional),
        config.layers,
        bidirectional=config.bidirectional,
        batch_first=True,
    ).double()
    weights = {}
    for suffix, direction in (("", mine.forwards), ("_reverse", mine.backwards)):
        for layer, recurrence in enumerate(direction or ()):
            for name, weight in recurrence.rnn.named_parameters():
                weights[name.replace("_l0", f"_l{layer}{suffix}")] = weight.detach()
    theirs.load_state_dict(weights)
    return theirs


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_it_equals_torch_on_every_sentence_without_padding(cell, bidirectional, layers):
    mine = encoder(cell=cell, bidirectional=bidirectional, layers=layers)
    theirs = torch_twin(mine)
    source, visible = batch()
    encoding = mine(source, visible)
    for row, length in enumerate(LENGTHS):
        states, last = theirs(mine.embedding(source[row : row + 1, :length]))
        torch.testing.assert_close(encoding.states[row, :length], states[0])
        last = last[0] if cell == "lstm" else last
        ends = last[-2:, 0].flatten() if bidirectional else last[-1, 0]
        torch.testing.assert_close(encoding.summary[row], ends)


def test_padding_changes_nothing_and_its_states_are_zeros():
    mine = encoder(layers=2)
    source, visible = batch()
    encoding = mine(source, visible)
    wider, wider_visible = (nn.functional.pad(tensor, (0, 3)) for tensor in (source, visible))
    wider = torch.where(wider_visible, wider, 9)
    again = mine(wider, wider_visible)
    torch.testing.assert_close(again.states[:, :7], encoding.states)
    torch.testing.assert_close(again.summary, encoding.summary)
    assert again.states[~wider_visible].eq(0).all()
    assert again.tokens is wider


def test_an_empty_sentence_is_zeros():
    source, visible = batch()
    visible = visible.clone()
    visible[1] = False
    encoding = encoder()(source, visible)
    assert encoding.states[1].eq(0).all()
    assert encoding.summary[1].eq(0).all()
    assert encoding.states.isfinite().all()


def test_pretrained_vectors_are_its_embedding():
    vectors = torch.randn(11, 3)
    embedding = TokenEmbedding(vocabulary=11, width=4, vectors=vectors, freeze=True)
    mine = RnnEncoder(RnnEncoderConfig(width=6, embedding=4), vocabulary=11, embedding=embedding)
    assert torch.equal(mine.embedding.table, vectors)
    mine(*batch()).states.sum().backward()
    assert mine.embedding.table.grad is None
    assert mine.embedding.project.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_every_parameter_gets_a_gradient_and_padding_passes_none_on(cell):
    mine = encoder(cell=cell, layers=2)
    source, visible = batch()
    source = torch.where(visible, source % 10, 10)
    encoding = mine(source, visible)
    (encoding.states.square().sum() + encoding.summary.sum()).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in mine.parameters())
    assert mine.embedding.table.grad[10].eq(0).all()


def test_dropout_is_for_training_only():
    mine = encoder(dropout=0.5, layers=2)
    source, visible = batch()
    assert not torch.equal(mine(source, visible).states, mine(source, visible).states)
    mine.eval()
    assert torch.equal(mine(source, visible).states, mine(source, visible).states)
