"""Does fused additive attention work with PyTorch's other features on a CUDA GPU?

Autocast, opcheck, torch.compile, CUDA graphs, gradient checkpointing, `explain`, and long problems in pieces: each
function is a check of additive_checks.py that returns ok or what is wrong.
"""

import torch
from torch import Tensor

from benchmarks.additive_shapes import Shape, inputs, poisoned, run, with_gradients
from jumok.attention import additive, attend, causal, explain
from jumok.attention.additive.gpu import forward


def weights_under_autocast() -> str:
    """Values of an identity show the weights that mixed them."""
    query, key, _, v = inputs(Shape(2, 70, 90, 64, 16))
    with torch.autocast("cuda", torch.bfloat16):
        out = attend(query.bfloat16(), key.bfloat16(), torch.eye(90, device="cuda").bfloat16(), score=additive(3 * v))
        worst = (out.weights().float() - out.values.float()).abs().max().item()
    return f"{'ok' if worst < 4e-3 else 'WRONG'}: {worst:.1e}"


def opcheck() -> str:
    from jumok.attention.additive.gpu import operators

    query, key, value, v = (tensor.requires_grad_() for tensor in inputs(Shape(2, 9, 11, 8, 4)))
    mask, beyond = torch.rand(2, 9, 11, device="cuda") > 0.3, torch.tensor([[11], [5]], device="cuda")
    seed = torch.tensor([7], device="cuda")
    for others in ((None, None, None, None, 0.0), (beyond - 5, beyond, mask, seed, 0.25)):
        torch.library.opcheck(operators.additive_attention, (query, key, value, v[None], *others))
    torch.library.opcheck(operators.additive_scores, (query, key, v[None]))
    return "ok"


def compiled() -> str:
    tensors, upstream = inputs(Shape(2, 65, 70, 32, 16)), torch.randn(2, 65, 16, device="cuda")
    compute = run("fused", visible=causal())
    worst = max(
        (a - b).abs().max().item()
        for a, b in zip(
            with_gradients(torch.compile(compute, fullgraph=True), tensors, upstream),
            with_gradients(compute, tensors, upstream),
            strict=True,
        )
    )
    return f"{'ok' if worst < 1e-5 else 'WRONG'}: {worst:.1e}"


def graphed(**options) -> str:
    tensors = [tensor.requires_grad_() for tensor in inputs(Shape(2, 65, 70, 32, 16))]
    upstream, compute = torch.randn(2, 65, 16, device="cuda"), run("fused", **options)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.autograd.grad(compute(*tensors), tensors, upstream)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = torch.autograd.grad(compute(*tensors), tensors, upstream)
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(torch.randn_like(tensor))
    graph.replay()
    torch.cuda.synchronize()
    wanted = torch.autograd.grad(compute(*tensors), tensors, upstream)
    return "ok" if all(torch.equal(a, b) for a, b in zip(held, wanted, strict=True)) else "WRONG"


def autocast_and_checkpoint() -> str:
    from torch.utils.checkpoint import checkpoint

    from jumok.layers import AdditiveAttention

    layer = AdditiveAttention(query_width=24, key_width=40, hidden=32, backend="fused").cuda()
    query, states = torch.randn(2, 7, 24, device="cuda"), torch.randn(2, 9, 40, device="cuda")

    def loss() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return layer(query, layer.memory(states)).values.float().square().sum()

    parameters = list(layer.parameters())
    plain = torch.autograd.grad(loss(), parameters)
    again = torch.autograd.grad(checkpoint(loss, use_reentrant=False), parameters)
    return "ok" if all(torch.equal(a, b) for a, b in zip(plain, again, strict=True)) else "WRONG"


def explained() -> str:
    query, key, value, v = inputs(Shape(2, 9, 11, 8, 4))
    return f"{'ok' if explain(query, key, value, score=additive(v)).backend == 'fused' else 'WRONG'}"


@poisoned()
def piecewise() -> str:
    """The backward pass in many pieces gives what it gives in one."""
    tensors, upstream = inputs(Shape(3, 200, 100, 32, 16)), torch.randn(3, 200, 16, device="cuda")
    wanted = with_gradients(run("fused"), tensors, upstream)
    held, forward.PLANES = forward.PLANES, 128 * 112 * 12
    try:
        gradients = with_gradients(run("fused"), tensors, upstream)
    finally:
        forward.PLANES = held
    worst = max((a - b).abs().max().item() for a, b in zip(gradients, wanted, strict=True))
    return f"{'ok' if worst < 1e-4 else 'WRONG'}: {worst:.1e}"
