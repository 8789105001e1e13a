"""ONNX graphs, written operator by operator as the equations of a model are."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from jumok.errors import MissingExtraError

OPSET, IR_VERSION = 20, 10
LARGE = 2**30
"""Bytes above which weights go to a file of their own; a file of ONNX holds at most 2 GiB."""
HIDDEN = -1e9
"""Added to the scores of what must get no weight."""


def onnx() -> Any:
    """The library; an error that says how to install it where it is missing."""
    try:
        import onnx as library
    except ImportError:
        raise MissingExtraError("onnx", "onnx", "exporting to ONNX") from None
    return library


class OnnxGraph:
    """A graph that grows by calls: g("Add", x, y) is the name of x + y.

    Weights are stored once, however often they are used.
    """

    def __init__(self, name: str) -> None:
        self.name, self.library = name, onnx()
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._stored: dict[tuple[int, tuple[int, ...]], str] = {}
        self._kept: list[Tensor] = []  # so that no other tensor takes an address in _stored
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; returns the name of its output."""
        return self.several(operator, 1, *inputs, **attributes)[0]

    def several(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """The same for an operator with several outputs."""
        names = [f"{operator}_{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(self.library.helper.make_node(operator, inputs, names, **attributes))
        return names

    def input(self, name: str, *axes: str | int, type: str = "FLOAT") -> str:
        """Declare an input."""
        kind = getattr(self.library.TensorProto, type)
        self._inputs.append(self.library.helper.make_tensor_value_info(name, kind, list(axes)))
        return name

    def output(self, name: str, value: str, *axes: str | int) -> None:
        """Declare an output of floats."""
        self._nodes.append(self.library.helper.make_node("Identity", [value], [name]))
        kind = self.library.TensorProto.FLOAT
        self._outputs.append(self.library.helper.make_tensor_value_info(name, kind, list(axes)))

    def weight(self, tensor: Tensor) -> str:
        """A constant; integers stay integers, everything else becomes float32."""
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if key not in self._stored:
            values = tensor.detach().cpu()
            values = values if values.dtype == torch.int64 else values.float()
            self._stored[key] = name = f"weight_{len(self._constants)}"
            self._constants[name] = self.library.numpy_helper.from_array(values.contiguous().numpy(), name)
            self._kept.append(tensor)
        return self._stored[key]

    def integers(self, *values: int) -> str:
        """A constant list of integers, such as axes or a shape."""
        return self.weight(torch.tensor(values, dtype=torch.int64))

    def number(self, value: float) -> str:
        """A constant number."""
        return self.weight(torch.tensor(value, dtype=torch.float32))

    def linear(self, x: str, layer: nn.Linear) -> str:
        """W x + b."""
        product = self("MatMul", x, self("Transpose", self.weight(layer.weight), perm=[1, 0]))
        return product if layer.bias is None else self("Add", product, self.weight(layer.bias))

    def size(self, x: str, axis: int) -> str:
        """The size of an axis, as a list of one."""
        return self("Shape", x, start=axis, end=axis + 1)

    def scale(self, x: str, factor: float) -> str:
        """factor · x."""
        return x if factor == 1.0 else self("Mul", x, self.number(factor))

    def add_axes(self, x: str, *axes: int) -> str:
        """Axes of size 1."""
        return self("Unsqueeze", x, self.integers(*axes))

    def drop_axes(self, x: str, *axes: int) -> str:
        """Without these axes of size 1."""
        return self("Squeeze", x, self.integers(*axes))

    def save(self, path: Path) -> None:
        """Check the graph and write it."""
        helper = self.library.helper
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="jumok")
        model.ir_version = IR_VERSION
        large = sum(len(constant.raw_data) for constant in constants) > LARGE
        self.library.save(model, str(path), save_as_external_data=large, location=f"{path.name}.weights")
        self.library.checker.check_model(str(path))
