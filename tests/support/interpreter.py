"""Triton's interpreter at twice its speed: a plugin of pytest for a process that runs kernels in it.

Triton puts interpreted functions in the place of its language again at every call of a function within a kernel, which
takes half of the time. Here it does so once for each function, and they stay.
"""

import functools

from triton.runtime import interpreter

put_in_place = interpreter._patch_lang


@functools.cache
def put_in_place_once(function):
    put_in_place(function)
    return interpreter._LangPatchScope()  # with nothing to restore


interpreter._patch_lang = put_in_place_once
