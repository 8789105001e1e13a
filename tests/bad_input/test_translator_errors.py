"""What the translator says to texts that are none."""

import pytest

from jumok.errors import ArgumentError
from jumok.translator import Translator


@pytest.mark.parametrize("wrong", ["123", [123], [None]])
def test_what_is_not_a_list_of_texts_is_refused(reverser, wrong):
    with pytest.raises(ArgumentError, match="must be a"):
        Translator.load(reverser).translate(wrong)
