"""The Transformer against torch.nn.Transformer with the same weights."""

import pytest
import torch
from torch import nn

from jumok.models import EncoderDecoder, TransformerDecoderConfig, TransformerEncoderConfig, build_model
from support.copied_weights import copy_torch_transformer

SIZES = {"width": 12, "heads": 3, "hidden": 20}


def their_model(norm: str, activation: str) -> nn.Transformer:
    """Three encoder and two decoder layers; a last norm only where the others come first, as in the papers."""
    options = {"activation": activation, "norm_first": norm == "pre", "batch_first": True, "dropout": 0.0}
    last = [nn.LayerNorm(12) if norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(12, 3, 20, **options), 3, norm=last[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(12, 3, 20, **options), 2, norm=last[1])
    theirs = nn.Transformer(12, 3, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    return theirs


def our_model(theirs: nn.Transformer, norm: str, activation: str) -> EncoderDecoder:
    options = SIZES | {"norm": norm, "activation": activation, "dropout": 0.0}
    ours = build_model(
        TransformerEncoderConfig(layers=3, **options),
        TransformerDecoderConfig(layers=2, **options),
        source_vocabulary=13,
        target_vocabulary=17,
    ).double()
    copy_torch_transformer(theirs, ours)
    return ours


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_same_weights_give_the_outputs_and_gradients_of_torch(norm, activation):
    torch.manual_seed(0)
    theirs = their_model(norm, activation)
    ours = our_model(theirs, norm, activation)
    source, target = torch.randint(13, (3, 7)), torch.randint(17, (3, 6))
    visible = torch.arange(7) < torch.tensor([[7], [4], [1]])
    embedded = [
        half.tokens(ids).detach().requires_grad_() for half, ids in ((ours.encoder, source), (ours.decoder, target))
    ]

    memory = theirs.encoder(embedded[0], src_key_padding_mask=~visible)
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    states = theirs.decoder(embedded[1], memory, tgt_mask=later, memory_key_padding_mask=~visible)
    logits = nn.functional.linear(states, ours.decoder.tokens.embedding.table, ours.decoder.output.bias)

    encoding = ours.encoder(source, visible)
    hidden = ours.decoder.hidden(encoding, target)
    prediction = ours(source, visible, target)
    torch.testing.assert_close(encoding.states[visible], memory[visible])
    torch.testing.assert_close(hidden.states, states)
    torch.testing.assert_close(prediction.logits, logits)

    upstream = torch.randn_like(logits)
    prediction.logits.backward(upstream)
    logits.backward(upstream)
    copy_gradients(theirs)
    expected = our_model(theirs, norm, activation)
    for half, other in ((ours.encoder, expected.encoder), (ours.decoder, expected.decoder)):
        for mine, wanted in zip(half.layers.parameters(), other.layers.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, wanted)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("layer", [0, 1])
def test_informed_attention_is_that_of_torch_without_a_mask_on_the_target(norm, layer):
    torch.manual_seed(0)
    theirs = their_model(norm, "relu")
    ours = our_model(theirs, norm, "relu")
    source, target = torch.randint(13, (3, 7)), torch.randint(17, (3, 6))
    visible, target_visible = (
        torch.arange(size) < torch.tensor(ends)[:, None] for size, ends in ((7, (7, 4, 1)), (6, (2, 6, 5)))
    )
    encoding = ours.encoder(source, visible)
    found = ours.decoder.informed_attention(encoding, target, target_visible, layer=layer)()

    cross, asked = theirs.decoder.layers[layer].multihead_attn, []
    cross.register_forward_pre_hook(lambda module, args: asked.append(args))
    paddings = {"tgt_key_padding_mask": ~target_visible, "memory_key_padding_mask": ~visible}
    theirs.decoder(ours.decoder.tokens(target), encoding.states, **paddings)
    _, wanted = cross(*asked[0], key_padding_mask=~visible, average_attn_weights=False)
    rows = target_visible[:, None, :, None]
    torch.testing.assert_close(found * rows, wanted * rows)


def copy_gradients(theirs: nn.Module) -> None:
    """Gradients in the place of the weights, so that copying weights copies gradients."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(parameter.grad)
