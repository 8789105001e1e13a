"""The Transformer against itself: steps against the whole, padded against alone, later words against earlier ones."""

from itertools import product

import pytest
import torch

from jumok.models import EncoderDecoder, Encoding, TransformerDecoderConfig, TransformerEncoderConfig, build_model
from jumok.models.transformer.decoder import TransformerDecoder, TransformerState
from jumok.settings import inherit

POSITIONS = ("added", "concatenated", "learned", "rotary")
SIZES = {"width": 12, "heads": 3, "hidden": 20, "longest": 11, "position_width": 4}
VOCABULARY = 17


def small_model(*, tied: str = "none", shared: bool = False, encoder=None, decoder=None, **both) -> EncoderDecoder:
    torch.manual_seed(0)
    encoder, decoder = {"layers": 2} | both | (encoder or {}), {"layers": 2, "tied": tied} | both | (decoder or {})
    model = build_model(
        TransformerEncoderConfig(**inherit(TransformerEncoderConfig, encoder, SIZES)),
        TransformerDecoderConfig(**inherit(TransformerDecoderConfig, decoder, SIZES)),
        source_vocabulary=VOCABULARY if shared else 13,
        target_vocabulary=VOCABULARY,
        shared_vocabulary=shared,
    )
    return model.double().eval()


KINDS = [
    pytest.param({"positions": positions, "norm": norm}, id=f"{positions}-{norm}")
    for positions, norm in product(POSITIONS, ("pre", "post"))
]
OTHERS = [
    pytest.param({"key_heads": 1, "positions": "rotary"}, id="one-key-head"),
    pytest.param({"activation": "swiglu"}, id="swiglu"),
    pytest.param({"encoder": {"width": 8, "heads": 2, "layers": 4}, "decoder": {"layers": 1}}, id="deep-shallow"),
    pytest.param({"decoder": {"copy": True}, "shared": True}, id="copy"),
    pytest.param({"decoder": {"copy": True}, "shared": True, "tied": "all", "norm": "post"}, id="copy-tied-post"),
]


@pytest.fixture
def batch():
    """Three sources of 7, 4 and 1 tokens, and targets of 6."""
    torch.manual_seed(1)
    visible = torch.arange(7) < torch.tensor([[7], [4], [1]])
    return torch.randint(13, (3, 7)), visible, torch.randint(VOCABULARY, (3, 6))


@pytest.mark.parametrize("options", KINDS + OTHERS)
def test_steps_give_what_the_whole_target_gives(batch, options):
    source, visible, target = batch
    model = small_model(**options)
    prediction = model(source, visible, target)
    state = model.decoder.start(model.encoder(source, visible), capacity=6)
    for step in range(6):
        log_probs, state = model.decoder.step(state, target[:, step : step + 1])
        torch.testing.assert_close(log_probs[:, 0], prediction.logits[:, step].log_softmax(-1))


def whole_pass(model: EncoderDecoder, source, visible, targets):
    """Log-probabilities [sentence, beam, vocabulary] of what follows each target [sentence, beam, length]."""
    rows = torch.arange(len(source)).repeat_interleave(targets.shape[1])
    prediction = model(source[rows], visible[rows], targets.flatten(0, 1))
    return prediction.logits[:, -1].log_softmax(-1).unflatten(0, targets.shape[:2])


@pytest.mark.parametrize("options", KINDS + OTHERS)
def test_a_beam_that_is_reordered_and_cut_goes_on_as_its_hypotheses_would(batch, options):
    source, visible, _ = batch
    model = small_model(**options)
    state = model.decoder.start(model.encoder(source, visible), capacity=6)
    targets = torch.zeros(3, 1, 0, dtype=torch.long)
    moves = [
        ("reorder", torch.zeros(3, 4, dtype=torch.long)),  # from one hypothesis to four, before any step
        ("reorder", torch.tensor([[3, 0, 0, 1], [2, 2, 2, 2], [0, 1, 2, 3]])),
        ("keep", torch.tensor([2, 0])),
        ("reorder", torch.tensor([[1, 3], [0, 2]])),  # a narrower beam
        ("keep", torch.tensor([1])),
    ]
    for move, chosen in moves:
        if move == "reorder":
            state = state.reorder(chosen)
            targets = targets[torch.arange(len(targets))[:, None], chosen]
        else:
            state = state.keep(chosen)
            source, visible, targets = source[chosen], visible[chosen], targets[chosen]
        tokens = torch.randint(VOCABULARY, targets.shape[:2])
        targets = torch.cat([targets, tokens[:, :, None]], -1)
        log_probs, state = model.decoder.step(state, tokens)
        torch.testing.assert_close(log_probs, whole_pass(model, source, visible, targets))


def test_weights_of_steps_are_those_of_the_whole_target(batch):
    source, visible, target = batch
    model = small_model(positions="rotary")
    encoding = model.encoder(source, visible)
    whole = model.decoder.hidden(encoding, target)
    state = model.decoder.start(encoding, capacity=6)
    for step in range(6):
        hidden, state = model.decoder.advance(state, target[:, step : step + 1])
        torch.testing.assert_close(hidden.states[:, 0], whole.states[:, step])
        for layer in range(2):
            torch.testing.assert_close(hidden.attention[layer]()[:, :, 0], whole.attention[layer]()[:, :, step])
            torch.testing.assert_close(
                hidden.self_attention[layer]()[:, :, 0], whole.self_attention[layer]()[:, :, step, : step + 1]
            )


def test_keys_of_the_source_are_there_once_however_wide_the_beam(batch):
    source, visible, _ = batch
    model = small_model()
    state = model.decoder.start(model.encoder(source, visible), capacity=6)
    wide = state.reorder(torch.zeros(3, 5, dtype=torch.long))
    assert isinstance(wide, TransformerState)
    for before, after in zip(state.memories, wide.memories, strict=True):
        assert before.keys.shape == (3, 3, 7, 4)
        assert before.keys is after.keys
        assert before.values is after.values


def test_every_layer_says_where_it_looked(batch):
    source, visible, target = batch
    model = small_model(encoder={"layers": 3})
    encoding, own = model.encoder.encode(source, visible)
    prediction = model(source, visible, target)
    hidden = model.decoder.hidden(encoding, target)
    assert (len(own), len(prediction.attention), len(hidden.self_attention)) == (3, 2, 2)
    for weights, shape in (
        (own[2], (3, 3, 7, 7)),
        (prediction.attention[1], (3, 3, 6, 7)),
        (hidden.self_attention[1], (3, 3, 6, 6)),
    ):
        assert weights().shape == shape
        torch.testing.assert_close(weights().sum(-1), torch.ones(shape[:-1]).double())
    assert hidden.self_attention[1]().triu(1).eq(0).all()
    for weights in (own[0](), prediction.attention[0]()):
        assert weights.masked_select(~visible[:, None, None]).eq(0).all()
    torch.testing.assert_close(prediction.attention[1](heads=[2]), hidden.attention[1]()[:, [2]])


@pytest.mark.parametrize("options", KINDS)
def test_later_target_words_do_not_change_earlier_predictions(batch, options):
    source, visible, target = batch
    model = small_model(**options)
    changed = target.clone()
    changed[:, 3:] = (target[:, 3:] + 1) % VOCABULARY
    before, after = model(source, visible, target).logits, model(source, visible, changed).logits
    torch.testing.assert_close(after[:, :3], before[:, :3])
    assert not torch.isclose(after[:, 3:], before[:, 3:]).all(-1).any()


@pytest.mark.parametrize("options", KINDS + OTHERS)
def test_a_sentence_alone_gives_what_it_gives_in_a_padded_batch(batch, options):
    source, visible, target = batch
    model = small_model(**options)
    together, encoded = model(source, visible, target), model.encoder(source, visible)
    for row, length in enumerate((7, 4, 1)):
        alone = source[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool)
        encoding = model.encoder(*alone)
        torch.testing.assert_close(encoding.states[0], encoded.states[row, :length])
        torch.testing.assert_close(encoding.summary[0], encoded.summary[row])
        prediction = model(*alone, target[row : row + 1, : length + 1])
        torch.testing.assert_close(prediction.logits[0], together.logits[row, : length + 1])
    assert encoded.states.masked_select(~visible[..., None]).eq(0).all()


def test_what_padding_holds_changes_neither_output_nor_gradient(batch):
    source, visible, target = batch
    model = small_model()
    gradients = []
    for filler in (0, 12):
        model.zero_grad()
        logits = model(source.masked_fill(~visible, filler), visible, target).logits
        logits.square().sum().backward()
        gradients.append([logits, *(parameter.grad.clone() for parameter in model.parameters())])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_a_source_of_nothing_is_zeros_and_can_still_be_decoded(batch):
    source, visible, target = batch
    model = small_model()
    visible = visible & torch.tensor([[True], [False], [True]])
    encoding = model.encoder(source, visible)
    assert encoding.states[1].eq(0).all()
    assert encoding.summary[1].eq(0).all()
    logits = model.decoder(encoding, target).logits
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    empty = model.encoder(source[:, :0], visible[:, :0])
    torch.testing.assert_close(model.decoder(empty, target).logits[1], logits[1])


def test_the_summary_is_the_mean_of_the_visible_states(batch):
    source, visible, _ = batch
    encoding = small_model().encoder(source, visible)
    for row, length in enumerate((7, 4, 1)):
        torch.testing.assert_close(encoding.summary[row], encoding.states[row, :length].mean(0))
    assert encoding.tokens is source


@pytest.mark.parametrize("options", KINDS + OTHERS)
def test_every_parameter_gets_a_gradient(batch, options):
    source, visible, target = batch
    model = small_model(**options).train()
    logits = model(source, visible, target).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
    for name, parameter in model.named_parameters():
        # A bias of the keys moves all scores of a query alike, which the softmax does not see.
        assert parameter.grad is not None, name
        assert "to_key.bias" in name or parameter.grad.abs().max() > 0, name


def test_logits_of_chosen_places_are_those_of_the_whole(batch):
    source, visible, target = batch
    model = small_model()
    places = torch.arange(6) < torch.tensor([[6], [2], [0]])
    hidden = model.decoder.hidden(model.encoder(source, visible), target)
    chosen = hidden.select(places.flatten().nonzero().flatten())
    torch.testing.assert_close(model.decoder.logits(chosen), model(source, visible, target).logits[places])


def test_a_decoder_takes_the_states_of_any_encoder_whatever_their_width():
    torch.manual_seed(2)
    config = TransformerDecoderConfig(width=12, heads=3, hidden=20)
    decoder = TransformerDecoder(config, vocabulary=VOCABULARY, encoder_width=5).eval()
    states, visible = torch.randn(2, 9, 5), torch.ones(2, 9, dtype=torch.bool)
    prediction = decoder(Encoding(states, visible, states.mean(1)), torch.zeros(2, 4, dtype=torch.long))
    assert prediction.logits.shape == (2, 4, VOCABULARY)
    assert prediction.attention[0]().shape == (2, 3, 4, 9)


def test_dropout_changes_predictions_while_training_only(batch):
    model = small_model(dropout=0.5)
    assert torch.equal(model(*batch).logits, model(*batch).logits)
    model.train()
    assert not torch.equal(model(*batch).logits, model(*batch).logits)


def test_half_precision_steps_answer_in_single_precision(batch):
    source, visible, target = batch
    model = small_model().half()
    log_probs, _ = model.decoder.step(model.decoder.start(model.encoder(source, visible), capacity=1), target[:, :1])
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, 1))


@pytest.mark.parametrize(
    ("tied", "names"),
    [
        ("none", {}),
        ("output", {"decoder.output.weight": "decoder.tokens.embedding.table"}),
        ("embeddings", {"decoder.tokens.embedding.table": "encoder.tokens.embedding.table"}),
        (
            "all",
            {
                "decoder.output.weight": "decoder.tokens.embedding.table",
                "decoder.tokens.embedding.table": "encoder.tokens.embedding.table",
            },
        ),
    ],
)
def test_tied_weights_are_one_tensor(tied, names):
    model = small_model(tied=tied, shared=True)
    all_names = dict(model.named_parameters(remove_duplicate=False))
    assert len(all_names) - len(dict(model.named_parameters())) == len(names)
    for name, same in names.items():
        assert all_names[name] is all_names[same]


@pytest.mark.parametrize("tied", ["none", "all"])
def test_weights_saved_and_loaded_into_another_model_give_the_same_outputs(batch, tied):
    model = small_model(tied=tied, shared=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    torch.manual_seed(5)
    other = build_model(
        model.encoder.config, model.decoder.config, source_vocabulary=17, target_vocabulary=17, shared_vocabulary=True
    )
    other = other.double().eval()
    assert not torch.equal(other(*batch).logits, model(*batch).logits)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(*batch).logits, model(*batch).logits)


def test_the_same_seed_makes_the_same_model():
    one, other = small_model().state_dict(), small_model().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_fresh_model_starts_near_chance(batch):
    """Embeddings of unit spread after scaling, logits of about unit spread: the loss begins near log(vocabulary)."""
    source, visible, target = batch
    for tied in ("none", "output"):
        model = small_model(tied=tied, width=96, hidden=192)
        assert 0.9 < model.encoder.tokens.embedding(source).std() < 1.1
        assert 0.3 < model(source, visible, target).logits.std() < 2
