"""Models built from the sections of a recipe."""

from itertools import product

import torch

from jumok.models import (
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.models.build import DECODERS, ENCODERS

SMALL = {"width": 8, "heads": 2, "hidden": 12, "layers": 1}


def built(encoder_config, decoder_config):
    return build_model(
        encoder_config, decoder_config, source_vocabulary=11, target_vocabulary=11, shared_vocabulary=True
    )


def test_embeddings_are_shared_between_families():
    model = built(RnnEncoderConfig(width=10, embedding=8), TransformerDecoderConfig(**SMALL, tied="embeddings"))
    assert model.decoder.tokens.embedding.table is model.encoder.embedding.table
    model = built(TransformerEncoderConfig(**SMALL), RnnDecoderConfig(width=7, embedding=8, tied="embeddings"))
    assert model.decoder.embedding.table is model.encoder.embedding.table


def test_a_table_shared_with_the_output_has_rows_of_length_1_that_embeddings_make_longer():
    encoders = RnnEncoderConfig(width=8, embedding=8), TransformerEncoderConfig(**SMALL)
    decoders = RnnDecoderConfig(width=8, embedding=8, tied="all"), TransformerDecoderConfig(**SMALL, tied="all")
    for encoder_config, decoder_config in product(encoders, decoders):
        model = built(encoder_config, decoder_config)
        table = model.encoder.embedding
        assert model.decoder.embedding is table
        assert model.decoder.output.weight is table.table
        assert table.factor == 8**0.5
        assert 0.7 < table.table.norm(dim=1).mean() < 1.3


def test_the_same_seed_makes_the_same_model():
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(built(TransformerEncoderConfig(**SMALL), RnnDecoderConfig(width=7, embedding=8)).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_every_kind_is_known_by_the_name_in_its_settings():
    for kinds in (ENCODERS, DECODERS):
        for name, kind in kinds.items():
            assert kind.config().kind == name
