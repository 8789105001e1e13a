"""What torch.compile(fullgraph=True) and torch.export are held to, as a program: `python compiled.py "scores export"`.

In a process of its own, because a compiler cannot see through the checks of signatures that tests switch on. Every cell
of a table is compared with the call that is not compiled: values, weights and, when compiled, gradients. The last keys
are NaN and infinity, and masks that know of them hide them; the last sequence of the batch then sees nothing.
"""

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok import layers, models
from jumok.attention import (
    attend,
    backends,
    causal,
    from_lengths,
    from_torch_mask,
    from_torch_padding,
    gaussian_window,
    window,
)
from support.attention import SCORES

backends.FEW_FEATURES = 0  # small additive calls, too, are computed in tiles, by an operator of jumok

BATCH, QUERIES, KEYS, WIDTH = 2, 4, 9, 4
HIDDEN = torch.arange(KEYS) >= torch.tensor([[KEYS - 2], [0]])
CENTRE = torch.tensor([0.0, 2.0, torch.nan, 3.0])
# A compiler knows no ~ for objects, so it is done here, and no & of an object with a tensor, so both are masks below.
HIDDEN_BEYOND = ~causal(2)


class Cell(NamedTuple):
    """Something to be compiled: a module, what it is given, and whether nothing of the broken keys may be seen."""

    name: str
    module: nn.Module
    given: tuple[Tensor, ...]
    clean: bool = False


class Call(nn.Module):
    """A function as a module; `used` holds what it takes its weights from."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], *used: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        self.used = nn.ModuleList(part for part in used if isinstance(part, nn.Module))
        self.parameters_used = nn.ParameterList(part for part in used if isinstance(part, nn.Parameter))

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        return self.function(*given)


def seen(hidden: Tensor) -> Tensor:
    """How many keys each sequence shows."""
    return hidden.logical_not().sum(-1)


MASKS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "none": lambda hidden, plane: None,
    "lengths": lambda hidden, plane: from_lengths(seen(hidden)),
    "causal": lambda hidden, plane: causal(1),
    "window": lambda hidden, plane: window(1, 2),
    "window around centres": lambda hidden, plane: window(1, centre=CENTRE),
    "tensor": lambda hidden, plane: ~plane & (torch.arange(QUERIES * KEYS).reshape(QUERIES, KEYS) % 4 > 0),
    "padding of torch": lambda hidden, plane: from_torch_padding(hidden),
    "mask of torch": lambda hidden, plane: from_torch_mask(
        torch.zeros(KEYS).masked_fill(plane, -torch.inf), true_means="hidden"
    ),
    "lengths & causal": lambda hidden, plane: from_lengths(seen(hidden)) & causal(),
    "causal | window": lambda hidden, plane: causal() | window(1),
    "~causal & tensor": lambda hidden, plane: HIDDEN_BEYOND & from_torch_mask(plane, true_means="hidden"),
    "gaussian window": lambda hidden, plane: gaussian_window(CENTRE, 2.0),
    "gaussian window & lengths": lambda hidden, plane: gaussian_window(CENTRE, 2.0) & from_lengths(seen(hidden)),
}
KNOW_OF_NAN = ("lengths", "tensor", "torch", "causal &")


def broken_keys(*shape: int) -> Tensor:
    keys = torch.randn(*shape)
    keys[..., -2, :], keys[..., -1, :] = torch.nan, torch.inf
    return keys


def score_cells() -> Iterator[Cell]:
    """Every score with every mask."""
    for name, case in SCORES.items():
        parameters = [nn.Parameter(tensor) for tensor in case.parameters(WIDTH, dtype=torch.float32)]
        for mask, build in MASKS.items():
            whole = mask == "none"

            def answer(query, key, value, hidden, build=build, case=case, parameters=parameters):
                visible = build(hidden, hidden[:, None, None])
                attended = attend(query, key, value, score=case.build(*parameters), visible=visible)
                return attended.values, attended.weights()

            draw = torch.randn if whole else broken_keys
            given = torch.randn(BATCH, 3, QUERIES, WIDTH), draw(BATCH, 3, KEYS, WIDTH), draw(BATCH, 3, KEYS, WIDTH)
            clean = any(word in mask for word in KNOW_OF_NAN)
            yield Cell(f"{name}, {mask}", Call(answer, *parameters), (*given, HIDDEN), clean)


EVERY_MASK = ("scaled_dot", "additive", "gaussian")
"""One score of each way to compute: PyTorch's kernel, tiles, and the equation as it is written."""


def chosen_score_cells() -> Iterator[Cell]:
    """Every score with a few masks, and every mask with a score of each way to compute."""
    for cell in score_cells():
        score, _, mask = cell.name.partition(", ")
        if score in EVERY_MASK or mask in ("none", "lengths & causal"):
            yield cell


def layer_cells() -> Iterator[Cell]:
    """Every layer that attends, the masks that a layer is given most often among them."""
    query, key = torch.randn(BATCH, QUERIES, WIDTH), broken_keys(BATCH, KEYS, WIDTH)
    rotary = layers.RotaryPositions(head_dim=WIDTH // 2)
    for mask in ("lengths", "tensor", "causal | window", "gaussian window & lengths"):
        for name, options in {"multi-head": {}, "grouped, rotary": {"key_heads": 1, "rotary": rotary}}.items():
            multi_head = layers.MultiHeadAttention(width=WIDTH, heads=2, **options)

            def answer(query, key, hidden, layer=multi_head, build=MASKS[mask]):
                values, weights = layer(query, key, visible=build(hidden, hidden[:, None, None]))
                return values, weights()

            yield Cell(f"{name}, {mask}", Call(answer, multi_head), (query, key, HIDDEN))
        additive = layers.AdditiveAttention(query_width=WIDTH, key_width=WIDTH, hidden=5)

        def answer(query, key, hidden, layer=additive, build=MASKS[mask]):
            values, weights = layer(query, layer.memory(key, build(hidden, hidden[:, None])))
            return values, weights()

        yield Cell(f"additive, {mask}", Call(answer, additive), (query, key, HIDDEN), "&" in mask)
    yield from luong_cells(query, key)
    yield from step_cells(query, key)
    yield from transformer_cells(query, key)
    yield from graph_cells()


def luong_cells(query: Tensor, key: Tensor) -> Iterator[Cell]:
    for score in ("dot", "general", "concat", "location"):
        for reach in ("global", "local-m", "local-p"):
            if reach != "global" and score not in ("general", "location"):
                continue  # a window is the same mask for every score of states; "location" has no keys
            luong = layers.LuongAttention(query_width=WIDTH, key_width=WIDTH, score=score, reach=reach, half_window=2)

            def answer(query, key, hidden, layer=luong):
                values, weights = layer(query, layer.memory(key, from_lengths(seen(hidden))), start=1)
                return layer.attentional_state(values, query), weights()

            yield Cell(f"luong, {score}, {reach}", Call(answer, luong), (query, key, HIDDEN), True)


def step_cells(query: Tensor, key: Tensor) -> Iterator[Cell]:
    """A source looked at step by step, and coverage."""
    additive = layers.AdditiveAttention(query_width=WIDTH, key_width=WIDTH, hidden=5)

    def steps(query, key, hidden):
        source = additive.precompute(key, ~hidden[:, None])
        return torch.cat([additive(query[:, [step]], source).values for step in range(2)], 1)

    yield Cell("additive, step by step", Call(steps, additive), (query, key, HIDDEN), True)
    covering = layers.CoverageAttention(query_width=WIDTH, key_width=WIDTH, hidden=5)

    def covered(query, key, hidden):
        return covering.attend(
            query, covering.memory(key, from_lengths(seen(hidden))), torch.rand(BATCH, QUERIES, KEYS)
        )

    yield Cell("coverage", Call(covered, covering), (query, key, HIDDEN), True)


def transformer_cells(query: Tensor, key: Tensor) -> Iterator[Cell]:
    sizes = {"width": WIDTH, "heads": 2, "hidden": 6}
    encoder, decoder = layers.EncoderLayer(**sizes), layers.DecoderLayer(**sizes)

    def encoded(states, hidden):
        values, weights = encoder(states, from_lengths(seen(hidden)))
        return values, weights()

    def decoded(query, key, hidden):
        values, own, cross = decoder(query, decoder.memory(key), from_lengths(seen(hidden)))
        return values, own(), cross()

    yield Cell("encoder layer", Call(encoded, encoder), (key, HIDDEN))
    yield Cell("decoder layer", Call(decoded, decoder), (query, key, HIDDEN))


def graph_cells() -> Iterator[Cell]:
    x, edges, features = torch.randn(5, 6), torch.tensor([[0, 1, 2, 3, 3], [1, 2, 2, 0, 4]]), torch.randn(5, 3)
    for kind in (layers.GraphAttention, layers.GraphAttentionV2, layers.SuperGraphAttention):
        graph = kind(in_width=6, out_width=4, heads=2, edge_width=3)

        def answer(x, features, edges, layer=graph):
            values, weights = layer(x, edges, features)
            return values, weights(), weights.loops()

        yield Cell(kind.__name__, Call(answer, graph), (x, features, edges))


def model_cells() -> Iterator[Cell]:
    """Whole models: the encoders and decoders of a recipe, each at least once."""
    recurrent = {"width": 8, "embedding": 6, "dropout": 0.0}
    transformer = {"width": 8, "heads": 2, "hidden": 12, "layers": 2, "dropout": 0.0}
    encoders = [
        models.TransformerEncoderConfig(**transformer),
        models.RnnEncoderConfig(**recurrent),
        models.TransformerEncoderConfig(**transformer, positions="rotary"),
        models.RnnEncoderConfig(cell="lstm", **recurrent),
    ]
    decoders = [
        models.TransformerDecoderConfig(**transformer),
        models.RnnDecoderConfig(attention="additive", **recurrent),
        models.RnnDecoderConfig(attention="additive", coverage=True, copy=True, **recurrent),
        models.RnnDecoderConfig(attention="general", reach="local-p", input_feeding=True, **recurrent),
    ]
    source, target = torch.randint(9, (BATCH, KEYS)), torch.randint(9, (BATCH, QUERIES))
    for encoder, decoder in zip(encoders, decoders, strict=True):
        model = models.build_model(encoder, decoder, source_vocabulary=9, target_vocabulary=9, shared_vocabulary=True)

        def answer(source, visible, target, model=model):
            return (model(source, visible, target).logits,)

        name = f"{encoder.kind} {getattr(encoder, 'cell', '')} with {decoder.kind} {getattr(decoder, 'attention', '')}"
        yield Cell(name, Call(answer, model), (source, torch.arange(KEYS) < torch.tensor([[KEYS], [2]]), target))


torch._dynamo.config.allow_rnn = True  # PyTorch's own recurrent layers do not compile without it

CELLS = {"scores": score_cells, "chosen-scores": chosen_score_cells, "layers": layer_cells, "models": model_cells}


def answers(module: Callable[..., tuple[Tensor, ...]], cell: Cell, *, gradients: bool) -> list[Tensor]:
    """What a module gives, and the gradients of what it was given and of its weights."""
    torch.manual_seed(1)
    given = [tensor.detach().clone() for tensor in cell.given]
    leaves = [tensor.requires_grad_() for tensor in given if tensor.is_floating_point()] + list(
        cell.module.parameters()
    )
    outputs = module(*given)
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    if not gradients:
        return outputs
    total = sum(output.nan_to_num(posinf=0, neginf=0).square().sum() for output in outputs)
    return outputs + [grad for grad in torch.autograd.grad(total, leaves, allow_unused=True) if grad is not None]


def check(cell: Cell, how: str) -> None:
    torch._dynamo.reset()
    if how == "export":
        traced = torch.export.export(cell.module, cell.given).module()
    elif how == "open-batch":
        traced = with_open_batch(cell)
    else:
        traced = torch.compile(cell.module, backend=how, fullgraph=True)
    differentiable = how not in ("export", "open-batch")
    found, wanted = (answers(each, cell, gradients=differentiable) for each in (traced, cell.module))
    torch.testing.assert_close(found, wanted, equal_nan=True)
    if cell.clean:
        assert all(output.isfinite().all() for output in traced(*cell.given)), "NaN came out from behind a mask"


def with_open_batch(cell: Cell) -> nn.Module:
    """Exported for any batch, having been tried with a larger one."""
    sizes = (tuple({0: torch.export.Dim("batch")} for _ in cell.given),)
    traced = torch.export.export(cell.module, cell.given, dynamic_shapes=sizes).module()
    more = tuple(torch.cat([tensor, tensor[:1]]) for tensor in cell.given)
    torch.testing.assert_close(traced(*more), cell.module(*more), equal_nan=True)
    return traced


def main(*tables: str) -> None:
    """All cells of tables such as "layers export", or those whose name begins with a text that follows.

    Says which of them fail.
    """
    failures = []
    for given in tables:
        table, how, *part = given.split(" ", 2)
        torch.manual_seed(0)
        cells = [cell for cell in CELLS[table]() if cell.name.startswith("".join(part))]
        assert cells, f"there is nothing to trace in {given!r}"
        failures += [f"{how} {cell.name}: {failure}" for cell in cells if (failure := why_it_fails(cell, how))]
    sys.exit("\n".join(failures) or None)


def why_it_fails(cell: Cell, how: str) -> str:
    try:
        check(cell, how)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
