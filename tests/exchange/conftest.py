"""The model of `transformers` that a file of tests makes, imported."""

from typing import Any

import pytest

from jumok.tasks.translator import Translator
from support.hugging_face import imported_translator


@pytest.fixture(scope="module")
def imported(original: Any, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """A translator made of `original`, which the file of tests defines."""
    return imported_translator(original.folder, tmp_path_factory.mktemp("imported") / "model")
