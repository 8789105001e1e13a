"""What tests share: commands, tiny models, servers, comparisons; and here the check of signatures while tests run.

jaxtyping's own decorator binds the arguments of every call and checks them before and after it, which doubles the time
that tests take. Here beartype alone checks signatures without shapes, and a signature with shapes is checked once, with
a table of the sizes of the call. A function's check is made when it is first called, for a worker calls few of them,
and a function is checked in its first calls of every test, for loops over words and batches call it thousands of times.
"""

import functools
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import FunctionType
from typing import NamedTuple, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import _array_types as internals
from jaxtyping._decorator import _destring_annotation
from jaxtyping._storage import get_shape_memo, pop_shape_memo, push_shape_memo
from torch import Tensor, dtype
from torch.nn import Parameter

# For pytest's --jaxtyping-packages. An int is a float where a float is wanted, as type checkers have it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
whole = jaxtyping.jaxtyped
CHECKS = 50
"""How many calls of a function are checked in a test."""
current_test, checks = object(), 0  # while tests are collected


def begin_test(*, check=True):
    """Check every function again, or none."""
    global current_test, checks
    current_test, checks = object(), CHECKS if check else 0


def jaxtyped(*, typechecker):
    """What the import hook of jaxtyping puts before every function and class."""

    def decorate(decorated):
        if isinstance(decorated, type):
            init = vars(decorated).get("__init__")
            if hasattr(decorated, "__dataclass_fields__") and init and not hasattr(init, "__wrapped__"):
                decorated.__init__ = decorate(init)
            return decorated
        if isgeneratorfunction(decorated):  # beartype checks it when it runs
            generator = whole(decorated, typechecker=typechecker)

            @functools.wraps(decorated)
            def begin(*arguments, **named):
                return (generator if checks else decorated)(*arguments, **named)

            return begin
        if not decorated.__annotations__:
            return decorated
        if iscoroutinefunction(decorated) or isasyncgenfunction(decorated):
            return checked_function(decorated, typechecker)[0]
        function = has_shapes = test = None
        checks_left = 0

        @functools.wraps(decorated)
        def call(*arguments, **named):
            nonlocal function, has_shapes, test, checks_left
            if test is not current_test:
                test, checks_left = current_test, checks
            if not checks_left:
                return decorated(*arguments, **named)
            checks_left -= 1
            if function is None:
                function, has_shapes = checked_function(decorated, typechecker)
            if not has_shapes:
                return function(*arguments, **named)
            push_shape_memo({})  # axes of one name have one size within a call
            try:
                return function(*arguments, **named)
            finally:
                pop_shape_memo()

        return call

    return decorate


def checked_function(function, typechecker):
    """The function with its arguments and result checked; and whether that needs a table of sizes."""
    hints = {name: _destring_annotation(hint, function.__globals__) for name, hint in function.__annotations__.items()}
    shapes = [shape for hint in hints.values() for shape in shapes_in(hint)]
    result = functools.update_wrapper(typechecker(with_hints(function, hints)), function)
    if any("{" in shape.dim_str for shape in shapes):  # names an argument
        return whole(result, typechecker=None), False
    return result, bool(shapes)


def with_hints(function, hints):
    """The same function with hints that are known; names of types that only a type checker imports are not."""
    code = function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copy = functools.update_wrapper(FunctionType(*code), function)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    del copy.__wrapped__
    return copy


def shapes_in(hint):
    """The types of arrays within a type."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return [hint]
    return [shape for part in get_args(hint) for shape in shapes_in(part)]


class PlainShape(NamedTuple):
    """A shape of tensors whose axes have names or sizes, and at most one name stands for several axes."""

    axes: tuple[str | int | None, ...]
    """Without those of the name for several; None is any size."""
    several: str | None
    several_at: int | None
    dtypes: dict[dtype, bool]
    """The types of elements seen, and whether the shape may have them."""


@functools.cache
def plain_shape(shape):
    """The shape as a plain one; None if it is more than that."""
    dims = list(shape.dims)
    at = shape.index_variadic
    several = [] if at is None else [dims.pop(at)]
    is_plain = shape.array_type is Tensor and not any(
        isinstance(dim, internals._SymbolicDim)
        or getattr(dim, "broadcastable", False)
        or getattr(dim, "treepath", False)
        for dim in dims + several
    )
    if not is_plain:
        return None
    axes = tuple(getattr(dim, "name", getattr(dim, "size", None)) for dim in dims)
    return PlainShape(axes, getattr(several[0], "name", None) if several else None, at, {})


def is_of_shape(shape, value):
    """Whether a value is of this shape, as jaxtyping has it but without copies of its tables at every check."""
    plain = plain_shape(shape) if type(value) in (Tensor, Parameter) else None
    if plain is None or shape._skip_instancecheck:
        return shape.__instancecheck_str__(value) == ""
    if value.dtype not in plain.dtypes:
        plain.dtypes[value.dtype] = has_dtype(shape, value.dtype)
    if not plain.dtypes[value.dtype]:
        return False
    sizes = tuple(value.shape)
    known, known_several, _, _ = get_shape_memo()
    several = ()
    if plain.several_at is not None:
        start, stop = plain.several_at, len(sizes) - len(plain.axes) + plain.several_at
        if stop < start:
            return False
        several, sizes = sizes[start:stop], sizes[:start] + sizes[stop:]
    if len(sizes) != len(plain.axes):
        return False
    new = {}
    for axis, size in zip(plain.axes, sizes, strict=True):
        if axis is None:
            continue
        if type(axis) is int:
            wanted = axis
        elif axis in known:
            wanted = known[axis]
        else:
            wanted = new.setdefault(axis, size)
        if size != wanted:
            return False
    if plain.several is not None and known_several.setdefault(plain.several, (False, several)) != (False, several):
        return shape.__instancecheck_str__(value) == ""  # with sizes that are broadcast
    known.update(new)
    return True


def has_dtype(shape, dtype):
    """Whether the elements of a shape may have this type."""
    name = str(dtype).removeprefix("torch.")
    return shape.dtypes is internals._any_dtype or any(
        name == pattern if isinstance(pattern, str) else pattern.match(name) for pattern in shape.dtypes
    )


jaxtyping.jaxtyped = jaxtyped
type(jaxtyping.AbstractArray).__instancecheck__ = is_of_shape
