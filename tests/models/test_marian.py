"""The Transformer against Hugging Face's Marian with the same weights: the same logits, the same translations."""

import pytest
import torch
from transformers import LogitsProcessor, MarianConfig, MarianMTModel

from jumok.decoding import DecodingConfig, Specials, beam_search
from support.copied_weights import as_jumok

PAD, EOS, VOCABULARY = 0, 1, 29


def their_model(activation: str, **options) -> MarianMTModel:
    """A small model as it begins, with weights large enough to have opinions and a bias on every word."""
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=24,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=3,
        encoder_ffn_dim=40,
        decoder_ffn_dim=36,
        activation_function=activation,
        scale_embedding=True,
        max_position_embeddings=64,
        init_std=0.3,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=PAD,
        **options,
    )
    model = MarianMTModel(config).double().eval()
    model.final_logits_bias.normal_()
    return model


@pytest.fixture
def batch():
    torch.manual_seed(1)
    visible = torch.arange(9) < torch.tensor([[9], [5], [2], [7]])
    return torch.randint(2, VOCABULARY, (4, 9)).masked_fill(~visible, PAD), visible


@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
def test_marian_weights_give_marian_logits(batch, activation):
    source, visible = batch
    theirs = their_model(activation)
    target = torch.randint(2, VOCABULARY, (4, 6))
    wanted = theirs(input_ids=source, attention_mask=visible.long(), decoder_input_ids=target).logits
    ours = as_jumok(theirs)(source, visible, target).logits
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-6)  # their sinusoids have single precision


def test_marian_weights_give_marian_attention(batch):
    source, visible = batch
    theirs = their_model("swish")
    theirs.set_attn_implementation("eager")
    target = torch.randint(2, VOCABULARY, (4, 6))
    wanted = theirs(input_ids=source, attention_mask=visible.long(), decoder_input_ids=target, output_attentions=True)
    ours = as_jumok(theirs)
    encoding, own = ours.encoder.encode(source, visible)
    hidden = ours.decoder.hidden(encoding, target)
    for mine, other in zip(hidden.attention, wanted.cross_attentions, strict=True):
        torch.testing.assert_close(mine(), other, rtol=0, atol=1e-6)
    for mine, other in zip(hidden.self_attention, wanted.decoder_attentions, strict=True):
        torch.testing.assert_close(mine(), other, rtol=0, atol=1e-6)
    for mine, other in zip(own, wanted.encoder_attentions, strict=True):
        torch.testing.assert_close(mine(), other, rtol=0, atol=1e-6)


class EndsAtTheLongest(LogitsProcessor):
    """An output that has reached its longest can only end, at the price the model asks."""

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def __call__(self, input_ids, scores):
        last = input_ids.shape[1] > self.longest
        return scores.masked_fill((torch.arange(VOCABULARY) != EOS) & last, -torch.inf)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_marian_weights_give_marian_translations_with_a_beam_of_five(batch, length_penalty, tied):
    source, visible = batch
    theirs = their_model("swish", tie_word_embeddings=tied)
    theirs.final_logits_bias[0, EOS] = 3
    wanted = theirs.generate(
        input_ids=source,
        attention_mask=visible.long(),
        num_beams=5,
        num_return_sequences=5,
        length_penalty=length_penalty,
        early_stopping="never",
        min_new_tokens=3,
        max_new_tokens=13,
        suppress_tokens=[PAD],
        logits_processor=[EndsAtTheLongest(12)],
        output_scores=True,
        return_dict_in_generate=True,
    )
    ours = as_jumok(theirs)
    found = beam_search(
        ours.decoder,
        ours.encoder(source, visible),
        Specials(pad=PAD, bos=PAD, eos=EOS),
        DecodingConfig(beam=5, length_penalty=length_penalty, min_length=3, max_length=12),
    )
    hypotheses = [hypothesis for sentence in found for hypothesis in sentence]
    assert [hypothesis.ids for hypothesis in hypotheses] == [words(ids) for ids in wanted.sequences.tolist()]
    scores = torch.tensor([hypothesis.score for hypothesis in hypotheses])
    torch.testing.assert_close(scores, wanted.sequences_scores.float())


def words(ids: list[int]) -> list[int]:
    return ids[1 : ids.index(EOS)]
