import pytest
import torch

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import TokenEmbedding
from jumok.models import (
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.models.transformer.decoder import TransformerDecoder
from jumok.models.transformer.encoder import TransformerEncoder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "heads = 3 does not divide {}.width = 256; the nearest width that works is 255"),
        ({"width": 3, "heads": 8}, "heads = 8 does not divide {}.width = 3; the nearest width that works is 8"),
        ({"key_heads": 3}, "key_heads = 3 does not divide {}.heads = 4; what does: 1, 2, 4"),
        ({"key_heads": 0}, "key_heads = 0 does not divide {}.heads = 4; what does: 1, 2, 4"),
        ({"layers": 0}, "layers = 0; wanted at least 1"),
        ({"hidden": -4}, "hidden = -4; wanted at least 1"),
        ({"dropout": 1.0}, "dropout = 1.0; wanted at least 0 and below 1"),
        ({"attention_dropout": -0.1}, "attention_dropout = -0.1; wanted at least 0 and below 1"),
        ({"kind": "rnn"}, 'kind = "rnn"; wanted one of transformer'),
        ({"norm": "middle"}, 'norm = "middle"; wanted one of pre, post'),
        ({"positions": "sine"}, 'positions = "sine"; wanted one of added, concatenated, learned, rotary'),
        ({"activation": "tanh"}, 'activation = "tanh"; wanted one of relu, gelu, silu, swiglu'),
        (
            {"positions": "concatenated", "position_width": 256},
            "position_width = 256 leaves no room for the token in {}.width = 256; wanted 1 to 255",
        ),
    ],
)
@pytest.mark.parametrize("section", ["encoder", "decoder"])
def test_a_setting_that_cannot_work_is_named_with_its_section(options, message, section):
    config = {"encoder": TransformerEncoderConfig, "decoder": TransformerDecoderConfig}[section]
    with pytest.raises(ConfigError) as raised:
        config(**options)
    assert str(raised.value) == f"{section}." + message.format(section)


def test_an_unknown_way_of_tying_is_refused():
    with pytest.raises(ConfigError, match=r'decoder.tied = "both"; wanted one of none, output, embeddings, all'):
        TransformerDecoderConfig(tied="both")


@pytest.mark.parametrize("tied", ["output", "all"])
def test_an_output_cannot_be_tied_to_narrower_embeddings(tied):
    with pytest.raises(ConfigError) as raised:
        TransformerDecoderConfig(positions="concatenated", tied=tied)
    assert str(raised.value) == (
        f'decoder.tied = "{tied}" needs embeddings as wide as the states, but decoder.positions = "concatenated" '
        'leaves them 224 of decoder.width = 256; set decoder.tied = "none" or "embeddings"'
    )


SMALL = {"width": 8, "heads": 2, "hidden": 8, "layers": 1}


@pytest.mark.parametrize(
    ("encoder", "shared", "message"),
    [
        ({}, False, "but their vocabularies differ; share the vocabulary or set decoder.tied"),
        ({"width": 4}, True, "but the encoder's are 4 wide and the decoder's 8; make them equal or set decoder.tied"),
    ],
)
def test_embeddings_that_cannot_be_shared_are_refused_with_the_reason(encoder, shared, message):
    with pytest.raises(ConfigError, match=message):
        build_model(
            TransformerEncoderConfig(**SMALL | encoder),
            TransformerDecoderConfig(**SMALL, tied="all"),
            source_vocabulary=9,
            target_vocabulary=9,
            shared_vocabulary=shared,
        )


def test_a_shared_vocabulary_has_one_size():
    with pytest.raises(ArgumentError, match="source_vocabulary = 9 and target_vocabulary = 8"):
        build_model(
            TransformerEncoderConfig(**SMALL),
            TransformerDecoderConfig(**SMALL),
            source_vocabulary=9,
            target_vocabulary=8,
            shared_vocabulary=True,
        )


def test_an_embedding_of_another_size_is_refused():
    with pytest.raises(ArgumentError, match="holds 5 tokens, 6 wide; wanted 9 tokens, 8 wide"):
        TransformerEncoder(
            TransformerEncoderConfig(**SMALL), vocabulary=9, embedding=TokenEmbedding(vocabulary=5, width=6)
        )


def test_an_output_cannot_be_tied_to_vectors_of_another_width():
    embedding = TokenEmbedding(vocabulary=9, width=8, vectors=torch.randn(9, 5))
    with pytest.raises(ConfigError, match=r'vectors 5 wide when embeddings are 8 wide; set decoder.tied = "none"'):
        TransformerDecoder(TransformerDecoderConfig(**SMALL), vocabulary=9, encoder_width=8, embedding=embedding)


@pytest.fixture
def model():
    return build_model(
        TransformerEncoderConfig(**SMALL, positions="learned", longest=6),
        TransformerDecoderConfig(**SMALL, positions="learned", longest=5),
        source_vocabulary=9,
        target_vocabulary=9,
    )


def test_more_steps_than_the_state_has_room_for_are_refused(model):
    source, visible = torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool)
    state = model.decoder.start(model.encoder(source, visible), capacity=1)
    _, state = model.decoder.step(state, torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ArgumentError, match="capacity of 1 steps, but step 2"):
        model.decoder.step(state, torch.zeros(2, 1, dtype=torch.long))


def test_a_source_longer_than_the_learned_positions_is_refused(model):
    assert (model.encoder.limit, model.decoder.limit) == (6, 5)
    with pytest.raises(ArgumentError, match="positions 0 to 6, but longest = 6"):
        model.encoder(torch.zeros(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.bool))


def test_words_are_not_copied_between_different_vocabularies():
    with pytest.raises(ConfigError, match=r"decoder.copy = true copies source tokens .* set decoder.copy = false"):
        build_model(RnnEncoderConfig(), RnnDecoderConfig(copy=True), source_vocabulary=9, target_vocabulary=9)
