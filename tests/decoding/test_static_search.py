"""Beam search on static tensors, as a GPU runs it, against the search that is written step by step."""

import gc
import weakref
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.analysis.maps.record import record
from jumok.decoding import DecodingConfig, Specials, beam_search
from jumok.decoding import static_search as module
from jumok.decoding.beam import longest_outputs, nodes_of
from jumok.decoding.half_precision_search import in_precision, search_in_precision
from jumok.decoding.static_search import recorded, rounded, searches_of, static_search
from jumok.layers.recorded import is_recorded
from jumok.models import (
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.settings import inherit

SPECIALS = Specials(pad=0, bos=1, eos=2)
VOCABULARY = 11
SETTINGS = [
    {"beam": 1},
    {"beam": 5},
    {"beam": 4, "length_penalty": 0.0, "min_length": 2},
    {"beam": 3, "length_penalty": -1.0},
    {"beam": 5, "min_length": 3, "no_repeat": 2},
    {"beam": 2, "length_penalty": 0.6, "no_repeat": 1},
]


def sharper(model):
    """Random models predict nearly the same everywhere; their outputs must differ."""
    with torch.no_grad():
        for weight in model.decoder.output.parameters():
            weight.mul_(8)
    return model.eval()


def transformer(seed=0, **settings):
    torch.manual_seed(seed)
    copy = settings.pop("copy", False)
    sizes = {"width": 16, "heads": 2, "hidden": 24, "layers": 2, "position_width": 4}
    sizes = inherit(TransformerEncoderConfig, settings, sizes)
    configs = TransformerEncoderConfig(**sizes), TransformerDecoderConfig(**sizes, copy=copy, tied="none")
    vocabularies = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "shared_vocabulary": copy}
    return sharper(build_model(*configs, **vocabularies))


def recurrent(seed=0, **settings):
    torch.manual_seed(seed)
    layers = {name: settings[name] for name in ("cell", "layers") if name in settings}
    configs = RnnEncoderConfig(width=16, embedding=8, **layers), RnnDecoderConfig(width=16, embedding=8, **settings)
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "shared_vocabulary": True}
    return sharper(build_model(*configs, **sizes))


def encoded(model, lengths=(5, 1, 3, 7, 6, 2, 9, 4, 3, 2, 5), seed=0):
    source = torch.randint(3, VOCABULARY, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return model.encoder(source, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def both(model, encoding, *, n_best=None, specials=SPECIALS, **settings):
    config = DecodingConfig(**{"max_length": 12} | settings)
    wanted = config.beam if n_best is None else n_best
    longest = longest_outputs(model.decoder, encoding, config)
    found = static_search(model.decoder, encoding, specials, config, longest, n_best=wanted)
    return found, beam_search(model.decoder, encoding, specials, config, n_best=wanted)


def assert_same(found, expected):
    assert [[one.ids for one in hypotheses] for hypotheses in found] == [
        [one.ids for one in hypotheses] for hypotheses in expected
    ]
    scores = [one.score for hypotheses in found for one in hypotheses]
    assert scores == pytest.approx([one.score for hypotheses in expected for one in hypotheses], rel=1e-4)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("positions", ["added", "concatenated", "learned", "rotary"])
def test_a_transformer_finds_the_same_hypotheses(positions, settings):
    model = transformer(positions=positions)
    assert_same(*both(model, encoded(model), **settings))


@pytest.mark.parametrize("longest", [9, 33, 100])
def test_learned_positions_need_not_be_as_many_as_the_steps_that_fit_into_the_caches(longest):
    model = transformer(positions="learned", longest=longest)
    assert_same(*both(model, encoded(model), beam=3, max_length=200, max_ratio=100.0))


@pytest.mark.parametrize(
    "kind",
    [
        {"norm": "post"},
        {"key_heads": 1},
        {"activation": "swiglu"},
        {"activation": "gelu", "norm": "post"},
        {"copy": True},
        {"copy": True, "norm": "post"},
    ],
    ids=str,
)
def test_every_kind_of_layer_finds_the_same_hypotheses(kind):
    model = transformer(**kind)
    assert_same(*both(model, encoded(model), beam=5))


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize(
    "kind",
    [
        {"attention": "additive"},
        {"attention": "additive", "coverage": True},
        {"attention": "none"},
        {"attention": "dot", "input_feeding": True},
        {"attention": "general", "cell": "lstm", "layers": 2},
        {"attention": "concat"},
        {"attention": "location", "reach": "local-p"},
        {"attention": "additive", "copy": True},
    ],
    ids=str,
)
def test_a_recurrent_decoder_finds_the_same_hypotheses(kind, beam):
    model = recurrent(**kind)
    assert_same(*both(model, encoded(model), beam=beam))


@pytest.mark.long
@given(
    st.integers(0, 10_000), st.integers(1, 6), st.floats(-1, 2), st.lists(st.integers(1, 9), min_size=1, max_size=20)
)
def test_any_batch_beam_and_penalty_find_the_same_in_double_precision(seed, beam, penalty, lengths):
    model = transformer(seed, layers=1).double()
    found, expected = both(model, encoded(model, lengths, seed), beam=beam, length_penalty=penalty, n_best=1)
    assert_same(found, expected)


@pytest.mark.parametrize("settings", [*SETTINGS, {"beam": 3, "max_length": 1}], ids=str)
@pytest.mark.parametrize("make", [transformer, recurrent])
def test_every_output_begins_with_the_first_token_that_is_asked_for(make, settings):
    model = make()
    for first in (7, 4):
        found, expected = both(model, encoded(model), specials=SPECIALS._replace(first=first), **settings)
        assert_same(found, expected)
        assert all(one.ids[0] == first for hypotheses in found for one in hypotheses)
    assert any(found)


def test_a_search_that_is_used_again_forgets_the_last_one_and_takes_new_weights():
    model = transformer()
    first, second = encoded(model), encoded(model, seed=1)
    assert_same(*both(model, first, beam=3))
    assert_same(*both(model, second, beam=3))
    with torch.no_grad():
        model.decoder.layers[0].own.to_key.weight.mul_(-2)
        model.decoder.tokens.embedding.table.mul_(1.5)
    assert_same(*both(model, first, beam=3))
    assert len(searches_of(model.decoder, torch.device("cpu")).by_shape) == 1


def test_finished_sentences_are_dropped_and_the_others_go_on(monkeypatch):
    sizes, taken = [], module.StaticSearch.take
    monkeypatch.setattr(module, "SMALLEST", 1)
    monkeypatch.setattr(
        module.StaticSearch, "take", lambda self, *given: sizes.append(self.shape.sentences) or taken(self, *given)
    )
    for model in (transformer(), recurrent()):
        with torch.no_grad():
            model.decoder.output.bias[SPECIALS.eos] = -100  # every output is as long as its source allows
        lengths = [1, 9, 2, 7, 3, 3, 5, 4] * 4
        assert_same(*both(model, encoded(model, lengths), beam=3, n_best=1, max_length=60))
        assert sizes
        assert sizes == sorted(sizes, reverse=True)
        sizes.clear()


@pytest.mark.parametrize("first", [None, 7])
def test_an_observer_sees_what_it_sees_of_the_other_search(first):
    model, specials = transformer(), SPECIALS._replace(first=first)
    encoding, config = encoded(model), DecodingConfig(beam=3, max_length=12)
    seen, expected = [], []
    longest = longest_outputs(model.decoder, encoding, config)
    static_search(model.decoder, encoding, specials, config, longest, n_best=1, observe=seen.append)
    beam_search(model.decoder, encoding, specials, config, expected.append, n_best=1)
    for mine, theirs in zip(seen, expected, strict=True):
        for (sentence, nodes), (other, others) in zip(nodes_of(mine), nodes_of(theirs), strict=True):
            assert sentence == other
            assert [node[:2] for node in nodes] == [node[:2] for node in others]


def test_a_check_that_raises_stops_the_search_and_the_next_one_is_right():
    model = transformer()
    encoding, config = encoded(model), DecodingConfig(beam=3, max_length=12)
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedError

    longest = longest_outputs(model.decoder, encoding, config)
    with pytest.raises(InterruptedError):
        static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=1, check=check)
    assert_same(*both(model, encoding, beam=3))


def test_a_sentence_without_finite_probabilities_has_no_hypothesis_and_changes_no_other():
    model = transformer()
    encoding = encoded(model)
    states = encoding.states.clone()
    states[3] = torch.nan
    found, expected = both(model, encoding._replace(states=states), beam=3)
    assert found[3] == []
    assert_same(found[:3] + found[4:], expected[:3] + expected[4:])


def test_what_a_search_keeps_goes_with_its_decoder():
    model = transformer()
    both(model, encoded(model), beam=2)
    gone = weakref.ref(searches_of(model.decoder, torch.device("cpu")))
    del model
    gc.collect()
    assert gone() is None


def test_tensors_made_in_inference_mode_serve_a_search_outside_of_it():
    model = transformer()
    with torch.inference_mode():
        encoding = encoded(model)
        static_search(
            model.decoder, encoding, SPECIALS, DecodingConfig(beam=2, max_length=5), torch.full((11,), 5), n_best=1
        )
    assert_same(*both(model, encoded(model), beam=2))


def test_a_decoder_with_steps_of_its_own_or_in_training_has_no_static_state():
    decoder = transformer().decoder
    assert decoder.has_static_state()
    assert not decoder.train().has_static_state()
    changed = transformer().decoder
    changed.__class__ = type("Changed", (type(changed),), {"advance": lambda self, state, tokens: None})
    assert not changed.has_static_state()
    assert not recurrent(attention="dot", reach="local-m").decoder.has_static_state()


def test_sizes_are_rounded_up_to_few():
    sizes = [rounded(number, least=1) for number in range(1, 130)]
    assert all(size >= number for number, size in enumerate(sizes, 1))
    assert sorted(set(sizes)) == [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192]


@pytest.mark.parametrize("make", [transformer, partial(recurrent, attention="dot")])
def test_a_recorded_model_is_searched_as_it_is_and_not_as_graphs_or_a_copy(make):
    model = make()
    with record(model) as recording:
        assert is_recorded(model.decoder)
        assert in_precision(model, torch.bfloat16) is model
        inputs = torch.randint(4, 9, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
        search_in_precision(model, inputs, SPECIALS, DecodingConfig(beam=2, max_length=5, precision="bf16"))
    assert all(len(runs[-1]) for runs in recording.calls.values())
    assert len(recording.calls) == len(recording.layers)
    assert not is_recorded(model)
    assert in_precision(model, torch.bfloat16) is not model
    model.decoder.register_forward_hook(lambda *_: None)
    assert is_recorded(model)


def test_a_copy_in_another_precision_follows_the_weights():
    model = transformer()
    copy = in_precision(model, torch.bfloat16)
    assert in_precision(model, torch.float32) is model
    with torch.no_grad():
        model.decoder.output.bias.fill_(3)
    assert in_precision(model, torch.bfloat16) is copy
    assert copy.decoder.output.bias.tolist() == [3] * VOCABULARY


@pytest.mark.parametrize(
    "model",
    [
        transformer(positions="rotary"),
        transformer(norm="post"),
        transformer(copy=True),
        recurrent(attention="additive", coverage=True),
        recurrent(attention="dot", input_feeding=True, cell="lstm"),
        recurrent(attention="location", reach="local-p"),
        recurrent(attention="additive", copy=True),
        recurrent(attention="none"),
    ],
)
def test_any_model_searches_in_half_precision_nearly_as_in_single(model):
    half = in_precision(model, torch.bfloat16)
    config = DecodingConfig(beam=3, max_length=4)
    found, static = (
        kind(half.decoder, encoded(half), SPECIALS, config, *rest, n_best=1)
        for kind, rest in ((beam_search, ()), (static_search, (torch.full((11,), 4),)))
    )
    single = beam_search(model.decoder, encoded(model), SPECIALS, config, n_best=1)
    for others in (found, static):
        assert [best.score for (best,) in others] == pytest.approx([best.score for (best,) in single], abs=0.3)


def test_what_is_too_large_for_half_precision_is_searched_again_in_single(monkeypatch):
    model = transformer()
    with torch.no_grad():
        model.decoder.layers[0].feed.to_output.bias.fill_(1e6)  # infinite in fp16
    source = torch.randint(3, VOCABULARY, (3, 4))
    visible = torch.ones_like(source, dtype=torch.bool)

    def found(precision):
        config = DecodingConfig(beam=2, max_length=6, precision=precision)
        return search_in_precision(model, (source, visible), SPECIALS, config, n_best=1)

    assert_same(found("fp16"), found("float32"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records graphs")
def test_a_recording_that_breaks_off_leaves_random_numbers_and_other_graphs_usable():
    def draw():
        torch.cuda.manual_seed(3)
        graph.replay()
        return drawn.clone()

    def fail():
        torch.ones(3, device="cuda").sum().item()  # the host may not wait for what is only recorded

    drawn, graph = torch.zeros(3, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn.copy_(torch.rand(3, device="cuda"))
    before = draw()
    with pytest.raises(RuntimeError), torch.cuda.stream(torch.cuda.Stream()):
        recorded(fail, torch.cuda.graph_pool_handle())
    assert torch.equal(draw(), before)
    assert torch.rand(3, device="cuda").isfinite().all()


def test_a_search_whose_steps_cannot_be_recorded_warns_and_is_refused():
    class Unrecorded(module.StaticSearch):
        def __init__(self):
            pass

        def record(self, *_):
            raise RuntimeError("operation not permitted when stream is capturing\nand more")

    decoder = transformer().decoder
    searches = searches_of(decoder, torch.device("cpu"))
    searches.pool = searches.stream = None
    said = pytest.warns(RuntimeWarning, match=r"step by step.*operation not permitted when stream is capturing$")
    with said, pytest.raises(module.NotRecordedError):
        searches._record(Unrecorded())
    assert searches.refused
