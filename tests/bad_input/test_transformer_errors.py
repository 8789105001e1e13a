import pytest
import torch

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import TokenEmbedding
from jumok.models import (
    Encoding,
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.models.transformer.decoder import TransformerDecoder
from jumok.models.transformer.encoder import TransformerEncoder
from support.refusals import refuses


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"width": 3, "heads": 8}, "{}.heads = 8 … {}.width = 3 … 8"),
        ({"key_heads": 3}, "{}.key_heads = 3 … {}.heads = 4 … 1, 2, 4"),
        ({"positions": "concatenated", "position_width": 256}, "{}.position_width = 256 … {}.width = 256"),
    ],
)
@pytest.mark.parametrize("section", ["encoder", "decoder"])
def test_a_setting_that_cannot_work_is_named_with_its_section(options, facts, section):
    config = {"encoder": TransformerEncoderConfig, "decoder": TransformerDecoderConfig}[section]
    with refuses(ConfigError, facts.replace("{}", section)):
        config(**options)


@pytest.mark.parametrize("tied", ["output", "all"])
def test_an_output_cannot_be_tied_to_narrower_embeddings(tied):
    with refuses(ConfigError, f'decoder.tied = "{tied}"', 'decoder.positions = "concatenated"', "224", "256"):
        TransformerDecoderConfig(positions="concatenated", tied=tied)


SMALL = {"width": 8, "heads": 2, "hidden": 8, "layers": 1}


def build(encoder=(), vocabularies=(9, 9), shared=False, **decoder):
    return build_model(
        TransformerEncoderConfig(**SMALL | dict(encoder)),
        TransformerDecoderConfig(**SMALL, **decoder),
        source_vocabulary=vocabularies[0],
        target_vocabulary=vocabularies[1],
        shared_vocabulary=shared,
    )


@pytest.mark.parametrize(
    ("encoder", "shared", "facts"),
    [({}, False, "vocabularies … decoder.tied"), ({"width": 4}, True, "4 wide … 8 … decoder.tied")],
)
def test_embeddings_that_cannot_be_shared_are_refused_with_the_reason(encoder, shared, facts):
    with refuses(ConfigError, facts):
        build(encoder, shared=shared, tied="all")


def test_a_shared_vocabulary_has_one_size():
    with refuses(ArgumentError, "source_vocabulary = 9", "target_vocabulary = 8"):
        build(vocabularies=(9, 8), shared=True)


def test_an_embedding_of_another_size_is_refused():
    table = TokenEmbedding(vocabulary=5, width=6)
    with refuses(ArgumentError, "5 tokens, 6 wide", "9 tokens, 8 wide"):
        TransformerEncoder(TransformerEncoderConfig(**SMALL), vocabulary=9, embedding=table)


def test_an_output_cannot_be_tied_to_vectors_of_another_width():
    embedding = TokenEmbedding(vocabulary=9, width=8, vectors=torch.randn(9, 5))
    with refuses(ConfigError, "5 wide", "8 wide", 'decoder.tied = "none"'):
        TransformerDecoder(TransformerDecoderConfig(**SMALL), vocabulary=9, encoder_width=8, embedding=embedding)


@pytest.fixture
def model():
    return build({"positions": "learned", "longest": 6}, positions="learned", longest=5)


def test_more_steps_than_the_state_has_room_for_are_refused(model):
    source, visible = torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool)
    state = model.decoder.start(model.encoder(source, visible), capacity=1)
    _, state = model.decoder.step(state, torch.zeros(2, 1, dtype=torch.long))
    with refuses(ArgumentError, "capacity of 1", "step 2"):
        model.decoder.step(state, torch.zeros(2, 1, dtype=torch.long))


def test_a_source_longer_than_the_learned_positions_is_refused(model):
    assert (model.encoder.limit, model.decoder.limit) == (6, 5)
    with refuses(ArgumentError, "0 to 6", "longest = 6"):
        model.encoder(torch.zeros(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.bool))


@pytest.mark.parametrize("config", [RnnDecoderConfig(copy=True), TransformerDecoderConfig(copy=True)])
def test_words_are_not_copied_between_different_vocabularies(config):
    with refuses(ConfigError, "decoder.copy = true", "vocabular", "decoder.copy = false"):
        build_model(RnnEncoderConfig(), config, source_vocabulary=9, target_vocabulary=9)


def test_a_source_without_tokens_cannot_be_copied():
    decoder = TransformerDecoder(
        TransformerDecoderConfig(width=8, heads=2, hidden=8, copy=True), vocabulary=9, encoder_width=7
    )
    image = Encoding(torch.randn(2, 4, 7), torch.ones(2, 4).bool(), torch.randn(2, 7))
    with refuses(ArgumentError, "source tokens", "copy = false"):
        decoder(image, torch.ones(2, 3, dtype=torch.long))


def test_heads_that_do_not_divide_the_width_are_told_the_nearest_width():
    with pytest.raises(ConfigError) as raised:
        TransformerEncoderConfig(heads=3)
    said = "encoder.heads = 3 does not divide encoder.width = 256; the nearest width that works is 255"
    assert str(raised.value) == said
