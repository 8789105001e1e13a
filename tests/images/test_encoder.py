"""Image encoders held against torchvision's and Transformers' residual networks, and joined to every decoder."""

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

from jumok.data.subwords import BOS, EOS, PAD
from jumok.decoding import DecodingConfig, Specials, beam_search
from jumok.decoding.half_precision_search import search_in_precision
from jumok.images.encoder import GridEncoder, GridEncoderConfig, PatchEncoder, PatchEncoderConfig, build_captioner
from jumok.images.resnet import begin_with_weights
from jumok.models.rnn.decoder import RnnDecoderConfig
from jumok.models.transformer.decoder import TransformerDecoderConfig

ENCODERS = {
    "grid": GridEncoderConfig(blocks=(1, 1), channels=8, width=24, dropout=0.0),
    "patches": PatchEncoderConfig(patch=8, layers=1, heads=2, width=24, hidden=32, dropout=0.0),
}
SMALL = {"width": 16, "embedding": 16, "dropout": 0.0}
DECODERS = {
    "fixed": RnnDecoderConfig(attention="none", **SMALL),
    "additive": RnnDecoderConfig(attention="additive", cell="lstm", **SMALL),
    "coverage": RnnDecoderConfig(attention="additive", coverage=True, **SMALL),
    "general": RnnDecoderConfig(attention="general", input_feeding=True, **SMALL),
    "transformer": TransformerDecoderConfig(width=16, heads=2, hidden=16, layers=2, dropout=0.0),
}


def pictures(count=2, side=32):
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8)


def shaken(network):
    """Norms that have seen something, so that they are not all alike."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.normal_(module.weight, 1.0, 0.1)
            nn.init.normal_(module.bias, std=0.1)
    return network.eval()


def names_of_transformers(name, deepest):
    """What Transformers calls a weight that torchvision calls `name`; `deepest` convolutions are in a block."""
    part, _, kind = name.rpartition(".")
    if part in ("conv1", "bn1"):
        return f"embedder.embedder.{'convolution' if part == 'conv1' else 'normalization'}.{kind}"
    stage, block, piece, *number = part.split(".")
    place = f"encoder.stages.{int(stage[5:]) - 1}.layers.{block}"
    if piece == "downsample":
        return f"{place}.shortcut.{'convolution' if number == ['0'] else 'normalization'}.{kind}"
    at = int(piece[-1]) - 1
    assert at < deepest
    return f"{place}.layer.{at}.{'convolution' if piece.startswith('conv') else 'normalization'}.{kind}"


@pytest.mark.parametrize(
    "config",
    [
        GridEncoderConfig(stem="large", blocks=(1, 1), channels=4, width=8),
        GridEncoderConfig(stem="small", blocks=(1, 1, 1), channels=2, width=8),
        PatchEncoderConfig(patch=8, layers=0, heads=2, width=8),
    ],
    ids=["large stem", "small stem", "patches"],
)
@pytest.mark.parametrize("side", [96, 104])
def test_the_centre_of_a_region_is_the_middle_of_the_pixels_that_it_sees(config, side):
    make = GridEncoder if isinstance(config, GridEncoderConfig) else PatchEncoder
    encoder = make(config, side=side).double().eval()
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data.abs_()  # so that no rectifier stops a pixel
    (first, step), region = encoder.centres, encoder.grid[0] // 2
    centre = (first + region * step) * side
    pixels = torch.zeros(side + 1, 3, side, side, dtype=torch.float64)  # one lit pixel in each, and a black image
    pixels[torch.arange(side), :, int(centre), torch.arange(side)] = 1.0
    with torch.no_grad():
        states = encoder.regions(pixels).unflatten(1, encoder.grid)[:, region, region]
    seen = (states[:-1] != states[-1]).any(-1).nonzero().flatten().tolist()
    assert (seen[0] + seen[-1] + 1) / 2 == pytest.approx(centre)


@pytest.mark.parametrize("layout", ["resnet18", "resnet50"])
def test_a_file_in_torchvisions_format_gives_the_grid_of_transformers(tmp_path, layout):
    basic = layout == "resnet18"
    theirs = transformers.ResNetModel(
        transformers.ResNetConfig(
            depths=[2, 2, 2, 2] if basic else [3, 4, 6, 3],
            hidden_sizes=[64, 128, 256, 512] if basic else [256, 512, 1024, 2048],
            layer_type="basic" if basic else "bottleneck",
        )
    )
    shaken(theirs)
    weights = theirs.state_dict()
    ours = GridEncoderConfig(layout=layout).network().eval()
    named = {name: weights[names_of_transformers(name, 2 if basic else 3)] for name in ours.state_dict()}
    assert len(named) == len(weights)
    torch.save({**named, "fc.weight": torch.zeros(1000, ours.width), "fc.bias": torch.zeros(1000)}, tmp_path / "r.pth")
    begin_with_weights(ours, tmp_path / "r.pth")
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(ours(images), theirs(images).last_hidden_state, atol=1e-4, rtol=1e-4)


def test_patches_go_through_the_layers_of_transformers_vit():
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    config.layer_norm_eps = 1e-5
    theirs = transformers.ViTModel(config, add_pooling_layer=False).eval()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.3)
    ours = PatchEncoder(PatchEncoderConfig(patch=8, layers=2, heads=2, width=24, hidden=32), side=32).eval()
    names = {
        "own.to_query": "attention.q_proj",
        "own.to_key": "attention.k_proj",
        "own.to_value": "attention.v_proj",
        "own.to_output": "attention.o_proj",
        "feed.to_hidden": "mlp.fc1",
        "feed.to_output": "mlp.fc2",
        "around_own.norm": "layernorm_before",
        "around_feed.norm": "layernorm_after",
    }
    for number in range(2):
        for mine, other in names.items():
            weights = theirs.get_submodule(f"layers.{number}.{other}").state_dict()
            ours.get_submodule(f"layers.{number}.{mine}").load_state_dict(weights)
    ours.to_width.load_state_dict(theirs.embeddings.patch_embeddings.projection.state_dict())
    ours.norm.load_state_dict(theirs.layernorm.state_dict())
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        wanted = theirs.embeddings.patch_embeddings(images)
        rows, columns = ours.places.rows.table, ours.places.columns.table
        wanted = wanted + torch.stack([rows[row] + columns[column] for row in range(4) for column in range(4)])
        for layer in theirs.layers:
            wanted = layer(wanted)
        assert torch.allclose(ours.regions(images), theirs.layernorm(wanted), atol=1e-4)


@pytest.mark.parametrize(
    ("layout", "entries", "parameters"),
    [("resnet18", 120, 11_176_512), ("resnet34", 216, 21_284_672), ("resnet50", 318, 23_508_032)],
)
def test_named_layouts_have_the_size_of_torchvisions_without_its_classifier(layout, entries, parameters):
    with torch.device("meta"):
        network = GridEncoderConfig(layout=layout).network()
    assert len(network.state_dict()) == entries
    assert sum(weight.numel() for weight in network.parameters()) == parameters


@pytest.mark.parametrize("layout", ["resnet18", "resnet50"])
@pytest.mark.parametrize("stages", [3, 4])
def test_a_file_of_torchvisions_gives_torchvisions_grid(tmp_path, layout, stages):
    try:
        import torchvision
    except Exception:  # not there, or not for this build of torch
        pytest.skip("needs torchvision")
    theirs = shaken(getattr(torchvision.models, layout)())
    torch.save(theirs.state_dict(), tmp_path / "weights.pth")
    ours = GridEncoderConfig(layout=layout, stages=stages).network()
    begin_with_weights(ours, tmp_path / "weights.pth")
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        wanted = theirs.maxpool(theirs.relu(theirs.bn1(theirs.conv1(images))))
        for number in range(1, stages + 1):
            wanted = getattr(theirs, f"layer{number}")(wanted)
        assert torch.equal(ours.eval()(images), wanted)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_weights_of_a_file_are_those_of_the_network_and_its_classifier_is_left_out(tmp_path, suffix):
    source = shaken(GridEncoderConfig(layout="resnet18").network())
    table = {**source.state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    path = tmp_path / f"weights{suffix}"
    (torch.save if suffix == ".pth" else save_file)(table, path)
    network = GridEncoderConfig(layout="resnet18", stages=3).network()
    begin_with_weights(network, path)
    for name, weight in network.state_dict().items():
        assert name.endswith("num_batches_tracked") or torch.equal(weight, source.state_dict()[name]), name


def test_a_frozen_network_stays_as_it_was(tmp_path):
    path = tmp_path / "weights.pth"
    config = GridEncoderConfig(blocks=(1,), channels=4, width=8, weights=str(path), freeze=True)
    torch.save(shaken(config.network()).state_dict(), path)
    encoder = GridEncoder(config, side=16)
    begin_with_weights(encoder.network, path)
    before = {name: weight.clone() for name, weight in encoder.network.state_dict().items()}
    encoder.train()
    encoder(pictures(4, 16)).states.sum().backward()
    assert all(torch.equal(weight, before[name]) for name, weight in encoder.network.state_dict().items())
    assert all(weight.grad is None for weight in encoder.network.parameters())
    assert encoder.to_width.weight.grad is not None


@pytest.mark.parametrize("kind", ENCODERS)
def test_regions_come_row_by_row_and_see_their_own_place(kind):
    """A change of the lower left corner changes the region there most."""
    config = ENCODERS[kind]
    encoder = (GridEncoder if kind == "grid" else PatchEncoder)(config, side=32).eval()
    rows, columns = encoder.grid
    image = pictures(1)
    other = image.clone()
    other[..., 24:, :8] = 255 - other[..., 24:, :8]
    with torch.no_grad():
        change = (encoder(image).states - encoder(other).states).norm(dim=-1).view(rows, columns)
    most = int(change.argmax())
    assert most // columns >= rows * 3 // 4
    assert most % columns < max(columns // 4, 1)


def test_patches_without_layers_know_nothing_of_each_other():
    encoder = PatchEncoder(PatchEncoderConfig(patch=8, layers=0, width=8, heads=2, dropout=0.0), side=32).eval()
    image = pictures(1)
    other = image.clone()
    other[..., 8:16, 16:24] = 0
    with torch.no_grad():
        same = (encoder(image).states == encoder(other).states).all(-1)[0]
    assert same.nonzero().flatten().tolist() == [place for place in range(16) if place != 4 + 2]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_any_image_encoder_goes_with_any_decoder(encoder, decoder):
    model = build_captioner(ENCODERS[encoder], DECODERS[decoder], side=32, vocabulary=11)
    images, target = pictures(3), torch.randint(4, 11, (3, 5))
    prediction = model(images, target)
    assert prediction.logits.shape == (3, 5, 11)
    for weights in prediction.attention:
        regions = model.encoder.grid[0] * model.encoder.grid[1]
        assert weights().shape[2:] == (5, regions)
        assert torch.allclose(weights().sum(-1), torch.tensor(1.0), atol=1e-5)
    prediction.logits.sum().backward()
    first = next(model.encoder.parameters())
    assert first.grad is not None
    model.eval()
    found = beam_search(
        model.decoder, model.encoder(images), Specials(PAD, BOS, EOS), DecodingConfig(beam=2, max_length=6)
    )
    assert len(found) == 3
    assert all(len(hypotheses) == 2 for hypotheses in found)


def test_weights_of_a_caption_equal_those_of_its_steps():
    model = build_captioner(ENCODERS["grid"], DECODERS["additive"], side=32, vocabulary=11).eval()
    encoding, ids = model.encoder(pictures(1)), [BOS, 5, 7, 9]
    with torch.no_grad():
        whole = model.decoder(encoding, torch.tensor([ids])).attention[0]()[0, 0]
        state = model.decoder.start(encoding, capacity=5)
        for place, token in enumerate(ids):
            hidden, state = model.decoder.advance(state, torch.tensor([[token]]))
            assert torch.allclose(hidden.attention[0]()[0, 0, 0], whole[place], atol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_captioner_searches_in_half_precision_as_in_single(encoder, decoder):
    model = build_captioner(ENCODERS[encoder], DECODERS[decoder], side=32, vocabulary=11).eval()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    half, single = (
        search_in_precision(
            model, (images,), Specials(0, 1, 2), DecodingConfig(beam=2, max_length=4, precision=precision), n_best=1
        )
        for precision in ("bf16", "float32")
    )
    assert [best.score for (best,) in half] == pytest.approx([best.score for (best,) in single], abs=0.1)
