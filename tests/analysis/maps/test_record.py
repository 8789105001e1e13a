"""Recorded weights are the layers' own, recording changes no output, and layers not recorded stay fused."""

import pytest
import torch
from torch import nn

import jumok
from jumok.analysis.maps.record import attention_layers, record
from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig
from support.rnn_decoders import decoder, encoding, targets

SIZES = {"width": 16, "heads": 2, "hidden": 24, "layers": 4, "dropout": 0.0}
TORCH = {"d_model": 16, "nhead": 2, "dim_feedforward": 24, "dropout": 0.0, "batch_first": True}


def transformer() -> EncoderDecoder:
    encoder = TransformerEncoder(TransformerEncoderConfig(**SIZES), vocabulary=9)
    config = TransformerDecoderConfig(**SIZES)
    return EncoderDecoder(encoder, TransformerDecoder(config, vocabulary=9, encoder_width=16)).eval()


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    visible = torch.arange(6) < torch.tensor([[6], [4]])
    return torch.randint(4, 9, (2, 6)), visible, torch.randint(4, 9, (2, 5))


@pytest.fixture
def fused(monkeypatch):
    """How often PyTorch's fused kernels ran: by name."""
    counts = {"scaled_dot_product_attention": 0, "_transformer_encoder_layer_fwd": 0}
    homes = {"scaled_dot_product_attention": nn.functional, "_transformer_encoder_layer_fwd": torch}

    def counting(name, run):
        def counted(*args, **kwargs):
            counts[name] += 1
            return run(*args, **kwargs)

        return counted

    for name, home in homes.items():
        monkeypatch.setattr(home, name, counting(name, getattr(home, name)))
    return counts


def test_record_is_a_name_of_the_package():
    assert jumok.record is record


def test_every_kind_of_layer_of_a_transformer_is_recorded_as_it_looked():
    model, (source, visible, target) = transformer(), batch()
    with record(model) as seen:
        prediction = model(source, visible, target)
    encoded = model.encoder.encode(source, visible)
    hidden = model.decoder.hidden(encoded.encoding, target)
    kinds = {"encoder": encoded.self_attention, "decoder": hidden.self_attention, "cross": prediction.attention}
    for kind, wanted in kinds.items():
        for layer, weights in enumerate(wanted):
            torch.testing.assert_close(seen.weights(layer, kind), weights())


def test_only_chosen_layers_and_kinds_are_recorded_and_all_stay_fused(fused):
    model, given = transformer(), batch()
    plain = model(*given).logits
    once = fused["scaled_dot_product_attention"]
    with record(model, layers=[3], kinds=["cross"]) as seen:
        recorded = model(*given).logits
    assert list(seen.calls) == ["decoder.layers.3.cross"]
    assert fused["scaled_dot_product_attention"] == 2 * once == 24  # four layers look three times each
    assert torch.equal(plain, recorded)
    with record(model, layers=[-1, 0], kinds=["encoder"]) as seen:
        model(*given)
    assert [layer.number for layer in seen.layers] == [0, 3]


@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "additive"},
        {"attention": "additive", "coverage": True},
        {"attention": "general", "input_feeding": True},
        {"attention": "dot", "reach": "local-p", "input_feeding": False},
    ],
    ids=str,
)
def test_the_looks_of_a_recurrent_decoder_are_put_together(settings):
    model = decoder(**settings)
    source = encoding(6 if settings["attention"] == "dot" else 7)
    with record(model) as seen:
        prediction = model(source, targets())
    torch.testing.assert_close(seen.weights(kind="cross"), prediction.attention[0]())


def test_a_second_run_is_not_mixed_with_the_first():
    model, (source, visible, target) = transformer(), batch()
    with record(model, layers=[0], kinds=["cross"]) as seen:
        model(source, visible, target)
        prediction = model(source.flip(1), visible, target)
    torch.testing.assert_close(seen.weights(0), prediction.attention[0]())
    assert len(seen.calls["decoder.layers.0.cross"]) == 2


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_torchs_multi_head_attention_gives_its_caller_what_it_always_gave(need_weights, average, dims):
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    query, key = (torch.randn(3, length, 16) if dims == 3 else torch.randn(length, 16) for length in (5, 7))
    options = {"need_weights": need_weights, "average_attn_weights": average}
    plain = layer(query, key, key, **options)
    with record(layer) as seen:
        recorded = layer(query, key, key, None, **options)
    torch.testing.assert_close(recorded, plain)
    _, wanted = layer(query, key, key, average_attn_weights=False)
    torch.testing.assert_close(seen.weights(), wanted if dims == 3 else wanted[None])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("padded", [False, True])
def test_layers_of_torch_that_are_not_recorded_keep_their_fast_path(fused, padded):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(**TORCH), 5).eval()
    x = torch.randn(2, 6, 16)
    mask = (torch.arange(6) >= torch.tensor([[6], [4]])) if padded else None
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=mask)
        fused.update(dict.fromkeys(fused, 0))
        with record(model, layers=[3]) as seen:
            recorded = model(x, src_key_padding_mask=mask)
        assert fused["_transformer_encoder_layer_fwd"] == 4
        kept = ~mask if padded else torch.ones(2, 6, dtype=torch.bool)
        torch.testing.assert_close(recorded[kept], plain[kept], atol=1e-5, rtol=1e-5)
        inputs = x
        for layer in model.layers[:3]:
            inputs = layer(inputs, src_key_padding_mask=mask)
        at = model.layers[3].self_attn
        _, wanted = at(inputs, inputs, inputs, key_padding_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(seen.weights(3)[kept[:, None].expand(2, 2, 6)], wanted[kept[:, None].expand(2, 2, 6)])


def test_a_whole_transformer_of_torch_is_recorded_and_trains_on(fused):
    model = nn.Transformer(num_encoder_layers=2, num_decoder_layers=2, **TORCH)
    source, target = torch.randn(2, 6, 16), torch.randn(2, 5, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    plain = model(source, target, tgt_mask=causal, tgt_is_causal=True)
    plain.sum().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    fused.update(dict.fromkeys(fused, 0))
    with record(model, layers=[1], kinds=["decoder", "cross"]) as seen:
        recorded = model(source, target, tgt_mask=causal, tgt_is_causal=True)
    recorded.sum().backward()
    assert fused["scaled_dot_product_attention"] == 4  # two of the encoder, two of the first decoder layer
    torch.testing.assert_close(recorded, plain)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], wanted)
    assert torch.all(seen.weights(1, "decoder").triu(1) == 0)
    assert seen.weights(1, "cross").shape == (2, 2, 5, 6)


def test_recorded_weights_can_be_trained_on():
    model = transformer()
    with record(model, layers=[2], kinds=["cross"]) as seen:
        model(*batch())
    seen.weights(2).square().sum().backward()
    assert model.decoder.layers[2].cross.to_query.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("make", [transformer, lambda: nn.Transformer(num_encoder_layers=1, **TORCH)])
def test_the_model_is_as_it_was_even_after_an_error(make):
    model = make()
    before = [dict(module.__dict__) for module in model.modules()]
    with pytest.raises(KeyError), record(model):
        raise KeyError("anything")
    assert [module.__dict__.keys() for module in model.modules()] == [kept.keys() for kept in before]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    for module, kept in zip(model.modules(), before, strict=True):
        assert getattr(module, "use_nested_tensor", None) == kept.get("use_nested_tensor")


def test_a_recording_becomes_a_map_of_one_sentence_without_its_padding():
    model, (source, visible, target) = transformer(), batch()
    with record(model) as seen:
        prediction = model(source, visible, target)
    shown = seen.map(list("abcd"), list("xyz"), kind="cross", layer=[1, 3], sentence=1)
    assert shown.weights.shape == (2, 2, 3, 4)
    assert shown.layer_names == ("cross 1", "cross 3")
    torch.testing.assert_close(shown.weights[1], prediction.attention[3]()[1, :, :3, :4].detach())
    assert seen.map(list("abcd"), kind="encoder", sentence=1).target == tuple("abcd")
    with pytest.raises(ArgumentError, match=r"7 target and 4 source words, but only 5 × 6 weights"):
        seen.map(list("abcd"), list("tuvwxyz"), kind="cross")


def test_too_few_words_for_a_sentence_are_refused():
    model, (source, visible, target) = transformer(), batch()
    wrong = r"3 target and 4 source words, but 5 × 6 weights; name every position that is not padding"
    with record(model) as seen:
        model(source, visible, target)
    with pytest.raises(ArgumentError, match=wrong):
        seen.map(list("abcd"), list("xyz"), kind="cross", sentence=0)
    with pytest.raises(ArgumentError, match="name every position"):
        seen.map(list("abcd"), kind="encoder", sentence=0)
    with record(model) as alone:
        model(source[:1], visible[:1], target[:1])
    for kind, words in (("decoder", ["abc"]), ("cross", ["abcdef", "xyz"]), ("encoder", ["abcd"])):
        with pytest.raises(ArgumentError, match="name every position"):
            alone.map(*map(list, words), kind=kind)
    assert alone.map(list("abcdef"), list("vwxyz"), kind="cross").weights.shape[2:] == (5, 6)
    with record(model) as padded:
        model(source[1:], visible[1:], target[1:])
    assert padded.map(list("abcd"), kind="encoder").source == tuple("abcd")


def test_steps_that_see_more_and_more_are_kept_one_by_one():
    model, (source, visible, _) = transformer(), batch()
    with torch.no_grad(), record(model, layers=[0], kinds=["decoder"]) as seen:
        state = model.decoder.start(model.encoder(source, visible), capacity=3)
        for _ in range(3):
            _, state = model.decoder.step(state, torch.full((2, 1), 5))
    (run,) = seen.calls["decoder.layers.0.own"]
    assert [weights.shape[-1] for weights in run] == [1, 2, 3]
    with pytest.raises(ArgumentError, match="read each call"):
        seen.weights(0)


def test_attention_layers_are_found_by_what_they_do():
    kinds = [(layer.kind, layer.number) for layer in attention_layers(nn.Transformer(num_encoder_layers=1, **TORCH))]
    assert kinds[:3] == [("encoder", 0), ("decoder", 0), ("cross", 0)]
