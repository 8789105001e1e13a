"""Models of Hugging Face and others that call scaled_dot_product_attention are recorded, and do not notice it."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from jumok.analysis.maps.record import attention_layers, record
from jumok.analysis.maps.record_sdpa import sdpa_weights
from jumok.errors import ArgumentError

transformers = pytest.importorskip("transformers")

SOURCE, TARGET = torch.arange(3, 17).view(2, 7), torch.arange(20, 30).view(2, 5)
PADDED = torch.arange(7) < torch.tensor([[7], [4]])


def marian(attention: str) -> nn.Module:
    from transformers.models.marian import MarianConfig, MarianMTModel

    halves = {"layers": 2, "attention_heads": 2, "ffn_dim": 16}
    sizes = {f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in halves.items()}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    config = MarianConfig(vocab_size=50, d_model=16, max_position_embeddings=32, **sizes, **ends)
    return MarianMTModel._from_config(config, attn_implementation=attention)


def bert(attention: str) -> nn.Module:
    from transformers.models.bert import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return BertModel._from_config(BertConfig(vocab_size=50, **sizes), attn_implementation=attention)


def gpt2(attention: str) -> nn.Module:
    from transformers.models.gpt2 import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
    return GPT2LMHeadModel._from_config(config, attn_implementation=attention)


def llama(attention: str) -> nn.Module:
    """Four heads share two heads of keys and values."""
    from transformers.models.llama import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=50, num_key_value_heads=2, **sizes)
    return LlamaForCausalLM._from_config(config, attn_implementation=attention)


MODELS = {
    marian: {
        "encoder": "encoder_attentions model.encoder.layers.{}.self_attn",
        "decoder": "decoder_attentions model.decoder.layers.{}.self_attn",
        "cross": "cross_attentions model.decoder.layers.{}.encoder_attn",
    },
    bert: {"encoder": "attentions encoder.layer.{}.attention.self"},
    gpt2: {"decoder": "attentions transformer.h.{}.attn"},
    llama: {"decoder": "attentions model.layers.{}.self_attn"},
}
"""For each kind of layer, where eager attention returns its weights, and the names of the layers."""


def pair_of(make):
    """The model with fused and with eager attention, with the same weights."""
    torch.manual_seed(0)
    fused, eager = (make(kind).eval() for kind in ("sdpa", "eager"))
    eager.load_state_dict(fused.state_dict())
    return fused, eager


def inputs(make, *, padded: bool) -> dict[str, torch.Tensor]:
    mask = {"attention_mask": PADDED.long()} if padded else {}
    return {"input_ids": SOURCE} | mask | ({"decoder_input_ids": TARGET} if make is marian else {})


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_weights_are_those_of_eager_attention_and_the_output_keeps_every_bit(make, padded):
    fused, eager = pair_of(make)
    given = inputs(make, padded=padded)
    with torch.no_grad():
        plain = fused(**given)[0]
        with record(fused) as seen:
            recorded = fused(**given)[0]
        wanted = eager(**given, output_attentions=True)
    assert torch.equal(recorded, plain)
    for kind, place in MODELS[make].items():
        attentions, names = place.split()
        for number, weights in enumerate(getattr(wanted, attentions)):
            rows = slice(None) if kind == "cross" or not padded else slice(4)  # rows of padding mean nothing
            torch.testing.assert_close(
                seen.weights(number, kind)[:, :, rows], weights[:, :, rows], atol=1e-5, rtol=1e-4
            )
            assert names.format(number) in seen.calls


def test_gradients_flow_through_the_model_and_through_the_weights():
    fused, _ = pair_of(llama)
    fused(input_ids=SOURCE).logits.sum().backward()
    wanted = [parameter.grad.clone() for parameter in fused.parameters()]
    fused.zero_grad()
    with record(fused, layers=[-1]) as seen:
        fused(input_ids=SOURCE).logits.sum().backward()
    for parameter, gradient in zip(fused.parameters(), wanted, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert [layer.name for layer in seen.layers] == ["model.layers.1.self_attn"]
    fused.zero_grad()
    with record(fused) as seen:
        fused(input_ids=SOURCE)
    seen.weights(1).square().sum().backward()
    assert fused.model.layers[0].self_attn.q_proj.weight.grad.abs().sum() > 0


def test_a_map_has_the_words_of_one_sentence():
    fused, _ = pair_of(marian)
    with torch.no_grad(), record(fused) as seen:
        fused(**inputs(marian, padded=False))
    shown = seen.map(list("abcdefg"), list("vwxyz"), kind="cross", sentence=1)
    assert shown.weights.shape == (2, 2, 5, 7)
    torch.testing.assert_close(shown.weights.sum(-1), torch.ones(2, 2, 5))


@pytest.mark.filterwarnings("ignore")
def test_a_map_of_a_generated_output_needs_one_pass_over_it():
    fused, _ = pair_of(marian)
    with record(fused, kinds=["cross"]) as seen:
        (ids,) = fused.generate(input_ids=SOURCE[:1], max_length=6, min_length=6)
    with pytest.raises(ArgumentError, match="run it once over the whole output"):
        seen.map(list("abcdefg"), list("vwxyz"), kind="cross")
    with torch.no_grad(), record(fused, kinds=["cross"]) as seen:
        fused(input_ids=SOURCE[:1], decoder_input_ids=ids[None, :5])
    assert seen.map(list("abcdefg"), list("vwxyz"), kind="cross").weights.shape == (2, 2, 5, 7)


def test_a_recording_prints_the_names_of_its_layers_without_weights():
    fused, _ = pair_of(marian)
    with torch.no_grad(), record(fused, kinds=["cross"]) as seen:
        fused(**inputs(marian, padded=False))
    layers = ", ".join(f"model.decoder.layers.{number}.encoder_attn" for number in range(2))
    assert repr(seen) == f"Recording({layers}; 1 runs)"


def test_recordings_can_be_nested_and_leave_nothing_behind():
    fused, _ = pair_of(gpt2)
    with torch.no_grad(), record(fused) as outer:
        with record(fused, layers=[0]) as inner:
            fused(SOURCE)
        fused(SOURCE.flip(1))
    assert list(inner.calls) == ["transformer.h.0.attn"]
    assert [len(runs) for runs in outer.calls.values()] == [2, 2]
    assert torch.equal(inner.weights(0), outer.calls["transformer.h.0.attn"][0][0])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in fused.modules())


def test_nested_recordings_of_one_of_our_layers_both_see_it():
    from jumok.layers import MultiHeadAttention

    layer, x = MultiHeadAttention(width=8, heads=2), torch.randn(1, 3, 8)
    with record(layer) as outer:
        with record(layer) as inner:
            layer(x)
        layer(x)
    (name,) = outer.calls
    assert [len(seen.calls[name]) for seen in (outer, inner)] == [2, 1]
    assert "_attend" not in layer.__dict__


def test_a_thread_beside_the_recording_is_not_recorded():
    fused, _ = pair_of(gpt2)
    with record(fused) as seen:
        other = threading.Thread(target=fused, args=(SOURCE,))
        other.start()
        other.join()
    assert not any(weights for runs in seen.calls.values() for weights in runs)


def test_eager_attention_says_how_it_can_be_seen():
    _, eager = pair_of(marian)
    with record(eager) as seen:
        eager(SOURCE, decoder_input_ids=SOURCE)
    for ask in (seen.weights, lambda: seen.weights(kind="cross"), lambda: seen.map(["a"], kind="cross")):
        with pytest.raises(ArgumentError, match=r'no attention call was seen.*attn_implementation="sdpa"'):
            ask()


class NanoAttention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.3) + x


def test_a_model_of_ones_own_is_recorded_by_the_name_of_its_class():
    model, x = nn.Sequential(NanoAttention(), nn.ReLU(), NanoAttention()), torch.randn(2, 3, 5, 4)
    with record(model) as seen:
        model(x)
    assert [(layer.kind, layer.number, layer.name) for layer in attention_layers(model)] == [
        ("attention", 0, "0"),
        ("attention", 1, "2"),
    ]
    wanted = (0.3 * x @ x.mT).masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    torch.testing.assert_close(seen.weights(0), wanted)


@pytest.mark.parametrize("mask", [None, "boolean", "float"])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (63, 65), (5, 3)])
def test_weights_times_values_are_what_the_kernel_answers(mask, groups, queries, keys):
    query = torch.randn(2, 4, queries, 8)
    key, value = torch.randn(2, groups, keys, 8), torch.randn(2, groups, keys, 6)
    given = {"enable_gqa": groups != 4, "scale": 0.7, "is_causal": mask is None}
    masks = {"boolean": torch.rand(2, 1, queries, keys) < 0.6, "float": torch.randn(4, queries, keys)}
    weights = sdpa_weights(query, key, masks.get(mask), **given)  # with a boolean mask, some queries see nothing
    wanted = F.scaled_dot_product_attention(query, key, value, masks.get(mask), **given)
    torch.testing.assert_close(weights @ value.repeat_interleave(4 // groups, 1), wanted)
