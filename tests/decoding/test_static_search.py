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


MANY = (9, 2, 7, 1, 8, 8, 3, 5, 1, 6, 4, 9, 2, 2, 7, 5, 3, 1, 6, 4, 8)


def refilled(model, encoding, rows, *, n_best=None, specials=SPECIALS, **settings):
    """What a few rows find for many sentences, and what step-by-step search finds."""
    config = DecodingConfig(**{"max_length": 40} | settings)
    wanted = config.beam if n_best is None else n_best
    longest = longest_outputs(model.decoder, encoding, config)
    found = static_search(model.decoder, encoding, specials, config, longest, n_best=wanted, rows=rows)
    expected = beam_search(model.decoder.cpu(), on(encoding, "cpu"), specials, config, n_best=wanted)
    return found, expected


def on(encoding, device):
    return type(encoding)(*(None if part is None else part.to(device) for part in encoding))


@pytest.fixture
def late(monkeypatch):
    """The host hears two steps late which sentences have finished, as on a GPU."""

    class Late(module.FinishWatch):
        def after_step(self, sentences):
            self.on_their_way.append((sentences, self.steps.clone()))
            return module.finished_of(*self.on_their_way.popleft()) if len(self.on_their_way) > module.LAG else None

    monkeypatch.setattr(module, "FinishWatch", Late)


def computed(monkeypatch):
    """The rows of every step from now on."""
    rows, step = [], module.StaticSearch.step
    monkeypatch.setattr(module.StaticSearch, "step", lambda self: rows.append(self.shape.sentences) or step(self))
    return rows


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("settings", [*SETTINGS, {"beam": 3, "n_best": 1}], ids=str)
@pytest.mark.parametrize("first", [None, 7])
@pytest.mark.parametrize("make", [transformer, recurrent])
def test_waiting_sentences_take_the_rows_of_finished_ones(late, make, first, settings):
    model = make()
    found, expected = refilled(model, encoded(model, MANY), 4, specials=SPECIALS._replace(first=first), **settings)
    assert_same(found, expected)
    assert "no_repeat" in settings or len({len(hypotheses[0].ids) for hypotheses in found if hypotheses}) > 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        *(partial(transformer, positions=positions) for positions in ("concatenated", "learned", "rotary")),
        partial(transformer, norm="post"),
        partial(transformer, key_heads=1),
        partial(transformer, copy=True),
        partial(recurrent, attention="additive", coverage=True),
        partial(recurrent, attention="none"),
        partial(recurrent, attention="dot", input_feeding=True),
        partial(recurrent, attention="general", cell="lstm", layers=2),
        partial(recurrent, attention="location", reach="local-p"),
        partial(recurrent, attention="additive", copy=True),
    ],
    ids=lambda model: str(model.keywords),
)
@pytest.mark.parametrize("rows", [1, 8])
def test_sentences_of_every_kind_of_model_take_rows(late, model, rows):
    made = model()
    assert_same(*refilled(made, encoded(made, MANY), rows, beam=3))


@pytest.mark.long
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.floats(-1, 2),
    st.lists(st.integers(1, 9), min_size=2, max_size=40),
    st.integers(1, 20),
)
def test_any_number_of_rows_finds_the_same_in_double_precision(seed, beam, penalty, lengths, rows):
    model = transformer(seed, layers=1).double()
    assert_same(*refilled(model, encoded(model, lengths, seed), rows, beam=beam, length_penalty=penalty, n_best=1))


def test_a_finished_sentence_waits_for_others_however_many_steps_they_take(late):
    model = transformer()
    encoding, config = encoded(model, [1] * 3 + [9] * 13), DecodingConfig(beam=2, min_length=1, max_length=31)
    longest = torch.tensor([1] * 3 + [30] * 5 + [31, 2, 2, 2, 2, 2, 2, 30])
    with torch.no_grad():
        model.decoder.output.bias[SPECIALS.eos] = -100  # every output is as long as it may be
    found = static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=1, rows=8)
    assert [len(best.ids) for (best,) in found] == longest.tolist()
    assert_same(found, static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=1))


@pytest.mark.slow
def test_refilled_rows_take_fewer_steps_than_one_batch_after_another(late, monkeypatch):
    model = transformer()
    with torch.no_grad():
        model.decoder.output.bias[SPECIALS.eos] = -100
    encoding, config = encoded(model, [5] * 64), DecodingConfig(beam=1, min_length=1, max_length=60)
    longest = torch.tensor([40, 5, 9, 7, 11, 6, 8, 10] * 8)
    rows = computed(monkeypatch)
    found = static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=1, rows=16)
    together = list(rows)
    rows.clear()
    for start in range(0, 64, 16):
        part, lengths = encoding.range(start, start + 16), longest[start : start + 16]
        assert_same(
            found[start : start + 16],
            static_search(model.decoder, part, SPECIALS, config, lengths, n_best=1),
        )
    assert len(rows) == 4 * 41
    assert len(together) < 0.7 * len(rows)
    assert set(together[: len(together) // 2]) == {16}
    assert sum(together) >= longest.sum()


@pytest.mark.parametrize("rows", [8, 16])
def test_a_search_ends_soon_after_its_outputs_have(late, monkeypatch, rows):
    model = transformer()
    with torch.no_grad():
        model.decoder.output.bias[SPECIALS.eos] = 100
    encoding, config, steps = encoded(model, [5] * 16), DecodingConfig(beam=2, max_length=60), computed(monkeypatch)
    found = static_search(model.decoder, encoding, SPECIALS, config, torch.full((16,), 35), n_best=1, rows=rows)
    assert all(best.ids == [] for (best,) in found)
    assert len(steps) == 16 // rows * (1 + module.LAG)


@pytest.mark.slow
def test_a_waiting_sentence_without_finite_probabilities_has_no_hypothesis_and_changes_no_other(late):
    model = transformer()
    encoding = encoded(model, MANY)
    states = encoding.states.clone()
    states[[1, 9, 20]] = torch.nan
    found, expected = refilled(model, encoding._replace(states=states), 4, beam=3)
    assert found[1] == found[9] == found[20] == []
    good = [number for number in range(len(MANY)) if number not in (1, 9, 20)]
    assert_same([found[number] for number in good], [expected[number] for number in good])
    assert_same(*refilled(model, encoding, 4, beam=3))  # nothing of them is left


@pytest.mark.slow
def test_a_check_that_raises_in_a_refilled_search_stops_it_and_the_next_one_is_right(late):
    model = transformer()
    encoding, config = encoded(model, MANY), DecodingConfig(beam=3, max_length=12)
    longest, calls = longest_outputs(model.decoder, encoding, config), []

    def check():
        calls.append(1)
        if len(calls) == 25:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=1, check=check, rows=4)
    assert_same(*refilled(model, encoding, 4, beam=3))


def test_an_observer_sees_all_sentences_at_once():
    model = transformer()
    encoding, config, seen = encoded(model), DecodingConfig(beam=3, max_length=12), []
    longest, options = longest_outputs(model.decoder, encoding, config), {"n_best": 1, "rows": 2}
    static_search(model.decoder, encoding, SPECIALS, config, longest, observe=seen.append, **options)
    assert seen[0].sentences.tolist() == list(range(11))
    plain = []
    beam_search(model.decoder, encoding, SPECIALS, config, plain.append, **options)
    assert [len(kept.sentences) for kept in plain] == [len(kept.sentences) for kept in seen]


def test_step_by_step_search_takes_no_more_sentences_at_once_than_it_may():
    model = transformer()
    encoding, config, calls = encoded(model), DecodingConfig(beam=3, max_length=12), []
    start = model.decoder.start
    model.decoder.start = lambda part, *, capacity: calls.append(len(part.states)) or start(part, capacity=capacity)
    found = beam_search(model.decoder, encoding, SPECIALS, config, rows=4)
    assert calls == [4, 4, 3]
    assert_same(found, beam_search(model.decoder, encoding, SPECIALS, config))


@pytest.mark.parametrize("overflows", [False, True])
def test_batches_are_encoded_one_by_one_and_searched_as_one(monkeypatch, overflows):
    model = transformer()
    if overflows:
        with torch.no_grad():
            model.decoder.layers[0].feed.to_output.bias.fill_(1e6)  # infinite in fp16
    batches = []
    for seed, length in enumerate((7, 4, 5)):
        source = torch.randint(3, VOCABULARY, (4, length), generator=torch.Generator().manual_seed(seed))
        batches.append((source, torch.ones_like(source, dtype=torch.bool)))
    config = DecodingConfig(beam=2, max_length=6, precision="fp16" if overflows else "float32")
    monkeypatch.setattr("jumok.decoding.beam._is_static", lambda *_: True)
    expected = [
        hypotheses for batch in batches for hypotheses in search_in_precision(model, batch, SPECIALS, config, n_best=1)
    ]
    rows = computed(monkeypatch)
    assert_same(search_in_precision(model, batches[0], SPECIALS, config, n_best=1, more=batches[1:]), expected)
    assert set(rows) <= {4, 2, 1}


def test_only_sentences_without_a_score_in_half_precision_are_searched_again(monkeypatch):
    model, calls = transformer(), []
    with torch.no_grad():
        model.encoder.tokens.embedding.table[9] = 1e6  # infinite in fp16
    batches = []
    for length in (7, 4, 5):
        source = torch.randint(3, 9, (4, length), generator=torch.Generator().manual_seed(length))
        source[2, 1] = 9 if length < 7 else source[2, 1]
        batches.append((source, torch.ones_like(source, dtype=torch.bool)))

    def recorded(decoder, encoding, *rest, **options):
        calls.append((encoding.states.dtype, len(encoding.states)))
        return beam_search(decoder, encoding, *rest, **options)

    monkeypatch.setattr("jumok.decoding.half_precision_search.beam_search", recorded)
    single, half = (DecodingConfig(beam=2, max_length=6, precision=precision) for precision in ("float32", "fp16"))
    expected = search_in_precision(model, batches[0], SPECIALS, single, more=batches[1:])
    found = search_in_precision(model, batches[0], SPECIALS, half, more=batches[1:])
    assert calls == [(torch.float32, 12), (torch.float16, 12), (torch.float32, 2)]
    assert all(found)
    assert_same([found[6], found[10]], [expected[6], expected[10]])


def test_a_search_goes_on_in_its_rows_if_a_smaller_one_cannot_be_recorded(monkeypatch):
    monkeypatch.setattr(module, "SMALLEST", 1)
    model, get, refused = transformer(), module.Searches.get, []

    def get_the_first(self, shape, encoding):
        if shape.sentences < 32:
            refused.append(shape)
            raise module.NotRecordedError
        return get(self, shape, encoding)

    monkeypatch.setattr(module.Searches, "get", get_the_first)
    assert_same(*both(model, encoded(model, [1, 9, 2, 7, 3, 3, 5, 4] * 4), beam=3, n_best=1, max_length=60))
    assert len(refused) == 1


def test_after_running_out_of_memory_no_search_counts_any_more(monkeypatch):
    model = transformer()
    encoding = encoded(model)
    assert_same(*both(model, encoding, beam=2))
    searches = searches_of(model.decoder, torch.device("cpu"))
    (shape,) = searches.by_shape
    searches.sizes[shape] = 40

    def fail(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(module, "StaticSearch", fail)
    with pytest.raises(module.NotRecordedError):
        searches.get(shape._replace(sentences=2 * shape.sentences), encoding)
    assert not searches.by_shape
    assert not searches.sizes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records graphs")
@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 5}, {"beam": 3, "min_length": 3, "no_repeat": 2}], ids=str)
@pytest.mark.parametrize("first", [None, 7])
@pytest.mark.parametrize(
    "make",
    [
        transformer,
        partial(transformer, positions="rotary", norm="post"),
        partial(transformer, copy=True),
        recurrent,
        partial(recurrent, attention="dot", input_feeding=True, cell="lstm"),
        partial(recurrent, attention="additive", coverage=True),
    ],
)
def test_a_gpu_finds_the_same_with_any_number_of_rows(make, first, settings):
    model, specials = make().double(), SPECIALS._replace(first=first)
    encoding = encoded(model, MANY * 3)
    expected = beam_search(model.decoder, encoding, specials, config := DecodingConfig(max_length=40, **settings))
    longest = longest_outputs(model.decoder, encoding, config)
    search = partial(static_search, model.cuda().decoder, specials=specials, config=config, n_best=config.beam)
    for rows in (4, 16, None):
        assert_same(search(encoding=on(encoding, "cuda"), longest=longest, rows=rows), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records graphs")
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize(
    "make", [transformer, partial(transformer, copy=True), recurrent, partial(recurrent, attention="dot")]
)
def test_kernels_of_a_gpu_find_the_same_with_any_number_of_rows(make, beam):
    model = make().cuda()
    encoding, config = on(encoded(model.cpu(), MANY * 3), "cuda"), DecodingConfig(max_length=40, beam=beam)
    longest = longest_outputs(model.cuda().decoder, encoding, config)
    few, all_ = (
        static_search(model.decoder, encoding, SPECIALS, config, longest, n_best=1, rows=rows) for rows in (8, None)
    )
    same = sum(mine[0].ids == other[0].ids for mine, other in zip(few, all_, strict=True))
    assert same >= 0.95 * len(few)  # products of other shapes may round equal scores differently


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
