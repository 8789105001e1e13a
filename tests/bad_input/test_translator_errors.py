"""What the translator says to texts that are none."""

import pytest

from jumok.errors import ArgumentError
from jumok.tasks.captioning import Captioner
from jumok.tasks.node_classification import NodeClassifier
from jumok.tasks.translator import Translator


@pytest.mark.parametrize("wrong", ["123", [123], [None]])
def test_what_is_not_a_list_of_texts_is_refused(reverser, wrong):
    with pytest.raises(ArgumentError, match="must be a"):
        Translator.load(reverser).translate(wrong)


@pytest.mark.parametrize(
    "load", [Translator.load, Captioner.load, NodeClassifier.load], ids=["text", "images", "graph"]
)
@pytest.mark.parametrize("wrong", [3, None, ["runs"]])
def test_what_is_not_the_path_of_a_folder_is_refused(load, wrong):
    with pytest.raises(ArgumentError, match="folder must be the path of a model's folder, but it is"):
        load(wrong)
