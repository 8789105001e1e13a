"""Settings of transducers and hard attention that do not go together."""

import pytest

from jumok.errors import ConfigError
from jumok.tasks import make_recipe

TEXT = {"data": {"corpus": "reverse"}}
IMAGES = {"images": {"scenes": "en", "size": 32}}
EDITS = {"tokenizer": {"edits": True}}
RNN = {"encoder": {"kind": "rnn"}}


def refusal(tables):
    with pytest.raises(ConfigError) as caught:
        make_recipe(tables)
    return str(caught.value)


def test_a_transducer_needs_edits_and_edits_a_transducer():
    assert "set tokenizer.edits = true" in refusal(TEXT | RNN | {"decoder": {"kind": "transducer"}})
    message = refusal(TEXT | RNN | EDITS | {"decoder": {"kind": "rnn"}})
    assert 'tokenizer.edits = true needs decoder.kind = "transducer", but it is "rnn"; set edits = false' in message


def test_the_attention_of_a_transducer_is_not_trained():
    guided = {"training": {"guided_alignment": 0.1}}
    data = {"data": {"pairs": "pairs.tsv", "alignments": "links.txt"}}
    message = refusal(data | RNN | EDITS | guided | {"decoder": {"kind": "transducer"}})
    assert "training.guided_alignment trains attention, but a transducer has no learned attention" in message


def test_captions_edit_nothing():
    tables = IMAGES | {"encoder": {"kind": "patches", "patch": 8}, "decoder": {"kind": "transducer"}}
    assert "decoder.kind = 'transducer' is not one of transformer, rnn, hard" in refusal(tables)


def test_hard_attention_has_two_orders():
    assert "decoder.order = 2" in refusal(TEXT | RNN | {"decoder": {"kind": "hard", "order": 2}})
