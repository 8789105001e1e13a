"""Dropout of whole embeddings in recurrent models."""

import pytest
import torch

from jumok.models import RnnDecoderConfig, RnnEncoderConfig, build_model
from jumok.models.rnn.hard_attention import HardAttentionConfig
from jumok.models.rnn.transducer import TransducerConfig, edit_vocabulary

SIZES = {"width": 8, "embedding": 6, "dropout": 0.0}
SOURCE, TARGET = torch.randint(4, 11, (2, 3, 5)).unbind()
CASES = {
    "encoder": (RnnEncoderConfig(**SIZES, word_dropout=0.5), RnnDecoderConfig(**SIZES)),
    "rnn": (RnnEncoderConfig(**SIZES), RnnDecoderConfig(**SIZES, word_dropout=0.5)),
    "hard": (RnnEncoderConfig(**SIZES), HardAttentionConfig(**SIZES, word_dropout=0.5)),
    "transducer": (RnnEncoderConfig(**SIZES), TransducerConfig(**SIZES, word_dropout=0.5)),
}


@pytest.mark.parametrize("name", CASES)
def test_in_training_a_token_keeps_all_of_its_vector_or_nothing(name):
    torch.manual_seed(0)
    configs = CASES[name]
    edits = edit_vocabulary(11) if name == "transducer" else 11
    model = build_model(*configs, source_vocabulary=11, target_vocabulary=edits)
    half = model.encoder if name == "encoder" else model.decoder
    seen = []
    half.word_dropout.register_forward_hook(lambda module, inputs, output: seen.append((*inputs, output)))
    model(SOURCE, torch.ones_like(SOURCE).bool(), TARGET)
    model.eval()(SOURCE, torch.ones_like(SOURCE).bool(), TARGET)
    (vectors, some), (plain, all_of_them) = seen
    assert torch.equal(plain, all_of_them)
    hidden = some.eq(0).all(-1)
    assert 0 < hidden.sum() < hidden.numel()
    torch.testing.assert_close(some[~hidden], 2 * vectors[~hidden])
