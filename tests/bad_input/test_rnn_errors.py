"""What is said of settings and arguments that a recurrent model cannot work with."""

import pytest
import torch

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import Recurrence, TokenEmbedding
from jumok.models import build_model
from jumok.models.encoder_decoder import Encoding
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig


def test_two_directions_cannot_share_an_odd_width():
    with pytest.raises(ConfigError, match=r"encoder\.width = 7 is odd, .* encoder\.bidirectional = false"):
        RnnEncoderConfig(width=7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"reach": "local-m"},
            r'decoder\.reach = "local-m" does not go with decoder\.attention = "additive": a window is for dot',
        ),
        (
            {"input_feeding": True},
            r'decoder\.input_feeding = true does not go with decoder\.attention = "additive": it is for dot',
        ),
        (
            {"attention": "dot", "coverage": True},
            r'decoder\.coverage = true does not go with decoder\.attention = "dot": it is for additive',
        ),
        (
            {"attention": "none", "copy": True},
            r'decoder\.copy = true does not go with decoder\.attention = "none": what is copied is what attention',
        ),
        ({"attention": "dot", "readout": 7}, r"decoder\.readout = 7 must equal decoder\.width = 512"),
        (
            {"attention": "dot", "tied": "all"},
            r'decoder\.tied = "all" needs an output layer as wide as decoder\.embedding = 256, but it is 512 wide',
        ),
    ],
)
def test_a_decoder_that_cannot_be_made_says_why(settings, message):
    with pytest.raises(ConfigError, match=message):
        RnnDecoderConfig(**settings)


def test_dot_attention_over_states_of_another_width_is_refused():
    with pytest.raises(ConfigError, match=r'score "dot" needs equal widths.*use score "general"'):
        RnnDecoder(RnnDecoderConfig(attention="dot"), vocabulary=9, encoder_width=7)


def test_a_table_that_does_not_fit_is_refused():
    table = TokenEmbedding(vocabulary=9, width=5)
    with pytest.raises(ArgumentError, match="the embedding holds 9 tokens, 5 wide; wanted 11 tokens, 256 wide"):
        RnnEncoder(RnnEncoderConfig(), vocabulary=11, embedding=table)
    vectors = TokenEmbedding(vocabulary=9, width=256, vectors=torch.randn(9, 3))
    with pytest.raises(ConfigError, match=r"cannot be tied to vectors 3 wide when embeddings are 256 wide"):
        RnnDecoder(RnnDecoderConfig(tied="output"), vocabulary=9, encoder_width=7, embedding=vectors)


def test_copying_between_vocabularies_that_differ_is_refused():
    with pytest.raises(ConfigError, match=r"decoder\.copy = true .*share the vocabulary or set decoder\.copy = false"):
        build_model(RnnEncoderConfig(), RnnDecoderConfig(copy=True), source_vocabulary=9, target_vocabulary=9)


def small(**settings) -> tuple[RnnDecoder, Encoding]:
    config = RnnDecoderConfig(width=6, embedding=5, **settings)
    encoding = Encoding(torch.randn(2, 4, 7), torch.ones(2, 4).bool(), torch.randn(2, 7))
    return RnnDecoder(config, vocabulary=9, encoder_width=7), encoding


def test_copying_from_what_has_no_tokens_is_refused():
    decoder, encoding = small(copy=True)
    with pytest.raises(ArgumentError, match="copies source tokens, but the encoding has none; set copy = false"):
        decoder(encoding, torch.ones(2, 3, dtype=torch.long))


def test_weights_of_a_head_that_is_not_there_are_refused():
    decoder, encoding = small()
    weights = decoder(encoding, torch.ones(2, 3, dtype=torch.long)).attention[0]
    with pytest.raises(ArgumentError, match="heads asks for number 1, but there is 1"):
        weights(heads=[1])


def test_a_cell_that_does_not_exist_is_refused():
    with pytest.raises(ArgumentError, match="cell = 'gnu'; wanted one of rnn, gru, lstm"):
        Recurrence(cell="gnu", inputs=3, width=4)
