"""Any encoder with any decoder: trained at once, and stepped through with the same answer."""

import pytest
import torch

from jumok.models import (
    HardAttentionConfig,
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransducerConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.models.rnn.transducer import edit_vocabulary

ENCODERS = [
    RnnEncoderConfig(width=12, embedding=10, dropout=0.0),
    RnnEncoderConfig(cell="lstm", width=6, embedding=10, layers=2, bidirectional=False, dropout=0.0),
    TransformerEncoderConfig(width=10, heads=2, hidden=16, layers=2, dropout=0.0),
]
DECODERS = [
    RnnDecoderConfig(attention="none", width=8, embedding=10, dropout=0.0),
    RnnDecoderConfig(attention="additive", width=8, embedding=10, dropout=0.0, copy=True, tied="all"),
    RnnDecoderConfig(attention="general", cell="lstm", width=8, embedding=10, input_feeding=True, dropout=0.0),
    TransformerDecoderConfig(width=10, heads=2, hidden=16, layers=2, dropout=0.0, tied="all"),
    TransducerConfig(width=8, embedding=10, dropout=0.0, copy=True),
    TransformerDecoderConfig(width=10, heads=2, hidden=16, layers=2, dropout=0.0, tied="all", copy=True),
    HardAttentionConfig(width=8, embedding=10, dropout=0.0, copy=True),
]


@pytest.mark.parametrize(
    "decoder", DECODERS, ids=lambda config: f"{config.kind}-{getattr(config, 'attention', config.copy)}"
)
@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda config: f"{config.kind}-{config.width}")
def test_any_encoder_goes_with_any_decoder(encoder, decoder):
    torch.manual_seed(0)
    written = edit_vocabulary(9) if decoder.kind == "transducer" else 9
    model = build_model(encoder, decoder, source_vocabulary=9, target_vocabulary=written, shared_vocabulary=True)
    model.double()
    source, target = torch.randint(9, (3, 6)), torch.randint(9, (3, 4))
    visible = torch.arange(6) < torch.tensor([[6], [2], [4]])
    whole = model(source, visible, target).logits
    whole.log_softmax(-1)[..., 1].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.no_grad():
        state = model.decoder.start(model.encoder(source, visible), capacity=4)
        for place in range(4):
            step, state = model.decoder.step(state, target[:, place : place + 1])
            torch.testing.assert_close(step[:, 0].double(), whole[:, place].log_softmax(-1))
