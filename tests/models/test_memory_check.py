"""How large a model is, found without making it: against the models themselves, and what is said of those too large."""

from dataclasses import replace

import pytest
import torch

from jumok.errors import ConfigError
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.images.encoder import GridEncoderConfig, PatchEncoderConfig, build_captioner
from jumok.models.build import build_model
from jumok.models.memory_check import check_memory, memory_of, size_of
from jumok.models.rnn.decoder import RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoderConfig
from jumok.models.transformer.decoder import TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoderConfig

CPU = torch.device("cpu")
TEXTS = {
    "transformer": (
        TransformerEncoderConfig(width=12, hidden=20, layers=5, positions="learned"),
        TransformerDecoderConfig(width=8, hidden=20, layers=4, heads=2, activation="swiglu"),
    ),
    "rnn": (RnnEncoderConfig(width=6, embedding=5, layers=4), RnnDecoderConfig(width=7, embedding=5, layers=6)),
    "luong": (
        RnnEncoderConfig(width=6, embedding=5, layers=3, cell="lstm", bidirectional=False),
        RnnDecoderConfig(width=7, embedding=5, layers=3, cell="lstm", attention="general", input_feeding=True),
    ),
    "one layer": (RnnEncoderConfig(width=6, embedding=5), TransformerDecoderConfig(width=8, layers=1, tied="all")),
}


def build(encoder, decoder):
    return build_model(encoder, decoder, source_vocabulary=11, target_vocabulary=11, shared_vocabulary=True)


def parameters(model):
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", TEXTS)
def test_the_size_is_that_of_the_model_however_deep_it_is(name):
    encoder, decoder = TEXTS[name]
    if name == "one layer":
        encoder = replace(encoder, embedding=8)
    found = size_of(build, encoder, decoder)
    assert found == (parameters(build(encoder, decoder)), 16 * parameters(build(encoder, decoder)))


@pytest.mark.parametrize(
    "encoder",
    [
        GridEncoderConfig(width=8, blocks=(4, 1, 3), channels=2),
        GridEncoderConfig(width=8, layout="resnet18", stages=2),
        PatchEncoderConfig(width=8, layers=5),
        PatchEncoderConfig(width=8, layers=0),
    ],
)
def test_the_size_of_a_captioner_is_that_of_its_model(encoder):
    def captioner(one, other):
        return build_captioner(one, other, side=16, vocabulary=9)

    decoder = RnnDecoderConfig(width=6, embedding=4)
    assert size_of(captioner, encoder, decoder).parameters == parameters(captioner(encoder, decoder))


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_the_size_of_a_graph_network_is_that_of_its_model(layers):
    def network(config):
        return GraphAttentionNetwork(config, features=5, classes=3, edge_width=2)

    config = GatConfig(layers=layers, width=8, heads=4, residual=True)
    assert size_of(network, config).parameters == parameters(network(config))


def test_weights_that_learn_nothing_need_no_gradients():
    frozen = replace(TEXTS["rnn"][0], vectors="words.vec", freeze_vectors=True)
    decoder = TEXTS["rnn"][1]
    assert size_of(build, frozen, decoder).bytes == size_of(build, TEXTS["rnn"][0], decoder).bytes - 12 * 11 * 5


@pytest.mark.long
@pytest.mark.parametrize(
    ("encoder", "decoder", "fault"),
    [
        ({"layers": 200, "width": 2**14}, {}, "encoder.width = 16384"),
        ({}, {"hidden": 10**12}, "decoder.hidden = 1000000000000"),
        ({"hidden": 50_000}, {"width": 10**6}, "decoder.width = 1000000"),
        ({"width": 2**60}, {}, f"encoder.width = {2**60}"),
        ({"positions": "learned", "longest": 10**10}, {}, "encoder.longest = 10000000000"),
    ],
)
def test_a_model_larger_than_memory_is_refused_at_once_by_the_setting_at_fault(encoder, decoder, fault):
    configs = TransformerEncoderConfig(**encoder), TransformerDecoderConfig(**decoder)
    with pytest.raises(ConfigError, match=r"^the model would have .* parameters.*, but there are [\d,.]+ GiB"):
        check_memory(build, *configs, device=CPU)
    with pytest.raises(ConfigError, match=f"; make {fault} smaller$"):
        check_memory(build, *configs, device=CPU)


def test_blocks_of_a_residual_network_and_layers_of_a_graph_network_are_counted_too(monkeypatch):
    monkeypatch.setattr("jumok.models.memory_check.memory_of", lambda device: 2**20)

    def captioner(one, other):
        return build_captioner(one, other, side=64, vocabulary=9)

    def network(config):
        return GraphAttentionNetwork(config, features=5, classes=3)

    with pytest.raises(ConfigError, match=r"make encoder\.blocks = \[1, 100\] smaller"):
        check_memory(captioner, GridEncoderConfig(blocks=(1, 100)), RnnDecoderConfig(), device=CPU)
    with pytest.raises(ConfigError, match=r"make network\.layers = 100 smaller"):
        check_memory(network, GatConfig(layers=100), device=CPU)


def test_what_is_said_counts_the_parameters_and_the_bytes_to_train_them(monkeypatch):
    encoder, decoder = TEXTS["rnn"]
    count = parameters(build(encoder, decoder))
    monkeypatch.setattr("jumok.models.memory_check.memory_of", lambda device: 16 * count - 1)
    with pytest.raises(ConfigError, match=rf"^the model would have {count:,} parameters, 0\.0 GiB"):
        check_memory(build, encoder, decoder, device=CPU)
    monkeypatch.setattr("jumok.models.memory_check.memory_of", lambda device: 16 * count)
    check_memory(build, encoder, decoder, device=CPU)


def test_a_container_has_no_more_memory_than_it_may_use(tmp_path, monkeypatch):
    whole = memory_of(CPU)
    assert whole is not None
    assert whole > 2**28
    for text, wanted in (("max\n", whole), (f"{2**27}\n", 2**27), (f"{2**62}\n", whole)):
        (tmp_path / "limit").write_text(text)
        monkeypatch.setattr("jumok.devices.LIMITS", ("/nowhere", str(tmp_path / "limit")))
        assert memory_of(CPU) == wanted
