"""Settings and arguments that a recurrent model cannot work with are named in the error."""

import pytest
import torch

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import Recurrence, TokenEmbedding
from jumok.models.encoder_decoder import Encoding
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from support.refusals import refuses


def test_two_directions_cannot_share_an_odd_width():
    with pytest.raises(ConfigError, match=r"encoder\.width = 7 is odd, .* encoder\.bidirectional = false"):
        RnnEncoderConfig(width=7)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"reach": "local-m"}, 'decoder.reach = "local-m" … decoder.attention = "dot" … "additive"'),
        ({"input_feeding": True}, 'decoder.input_feeding = true … decoder.attention = "dot" … "additive"'),
        ({"attention": "dot", "coverage": True}, 'decoder.coverage = true … decoder.attention = "additive" … "dot"'),
        ({"attention": "none", "copy": True}, 'decoder.copy = true … decoder.attention = "none"'),
        ({"attention": "dot", "readout": 7}, "decoder.readout = 7 … decoder.width = 512"),
        ({"attention": "dot", "tied": "all"}, 'decoder.tied = "all" … decoder.embedding = 256 … 512'),
    ],
)
def test_a_decoder_that_cannot_be_made_says_why(settings, facts):
    with refuses(ConfigError, facts):
        RnnDecoderConfig(**settings)


def test_dot_attention_over_states_of_another_width_is_refused():
    with refuses(ConfigError, '"dot"', "widths", '"general"'):
        RnnDecoder(RnnDecoderConfig(attention="dot"), vocabulary=9, encoder_width=7)


def test_a_table_that_does_not_fit_is_refused():
    table = TokenEmbedding(vocabulary=9, width=5)
    with refuses(ArgumentError, "9 tokens, 5 wide", "11 tokens, 256 wide"):
        RnnEncoder(RnnEncoderConfig(), vocabulary=11, embedding=table)
    vectors = TokenEmbedding(vocabulary=9, width=256, vectors=torch.randn(9, 3))
    with refuses(ConfigError, "tied", "3 wide", "256 wide"):
        RnnDecoder(RnnDecoderConfig(tied="output"), vocabulary=9, encoder_width=7, embedding=vectors)


def small(**settings) -> tuple[RnnDecoder, Encoding]:
    config = RnnDecoderConfig(width=6, embedding=5, **settings)
    encoding = Encoding(torch.randn(2, 4, 7), torch.ones(2, 4).bool(), torch.randn(2, 7))
    return RnnDecoder(config, vocabulary=9, encoder_width=7), encoding


def test_copying_from_what_has_no_tokens_is_refused():
    decoder, encoding = small(copy=True)
    with refuses(ArgumentError, "source tokens", "copy = false"):
        decoder(encoding, torch.ones(2, 3, dtype=torch.long))


def test_weights_of_a_head_that_is_not_there_are_refused():
    decoder, encoding = small()
    weights = decoder(encoding, torch.ones(2, 3, dtype=torch.long)).attention[0]
    with refuses(ArgumentError, "heads", "1"):
        weights(heads=[1])


def test_a_cell_that_does_not_exist_is_refused():
    with refuses(ArgumentError, "cell = 'gnu'", "rnn, gru, lstm"):
        Recurrence(cell="gnu", inputs=3, width=4)
