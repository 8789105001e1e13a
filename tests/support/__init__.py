"""What tests share: commands, tiny models, servers, comparisons; and here the check of signatures while tests run.

jaxtyping's own decorator binds the arguments of every call and checks them before and after it, which doubles the time
that tests take. Here beartype alone checks signatures without shapes, and a signature with shapes is checked once, with
a table of the sizes of the call.
"""

import functools
from inspect import isgeneratorfunction
from types import FunctionType
from typing import get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping._decorator import _destring_annotation
from jaxtyping._storage import pop_shape_memo, push_shape_memo

# For pytest's --jaxtyping-packages. An int is a float where a float is wanted, as type checkers have it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
whole = jaxtyping.jaxtyped


def jaxtyped(*, typechecker):
    """What the import hook of jaxtyping puts before every function and class."""

    def decorate(decorated):
        if isinstance(decorated, type) or isgeneratorfunction(decorated):  # beartype checks a generator when it runs
            return whole(decorated, typechecker=typechecker)
        hints = {
            name: _destring_annotation(hint, decorated.__globals__) for name, hint in decorated.__annotations__.items()
        }
        shapes = [shape for hint in hints.values() for shape in shapes_in(hint)]
        function = functools.update_wrapper(typechecker(with_hints(decorated, hints)), decorated)
        if any("{" in shape.dim_str for shape in shapes):  # names an argument
            return whole(function, typechecker=None)
        return with_sizes(function) if shapes else function

    return decorate


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


def with_sizes(function):
    """A function whose axes of one name have one size within a call."""

    @functools.wraps(function)
    def call(*arguments, **named):
        push_shape_memo({})
        try:
            return function(*arguments, **named)
        finally:
            pop_shape_memo()

    return call


jaxtyping.jaxtyped = jaxtyped
