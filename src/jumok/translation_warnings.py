"""What makes a translation doubtful: a sentence longer than any the model was trained on, or words it does not know."""

from collections.abc import Sequence
from typing import Literal

from jumok.data.coverage import coverage
from jumok.model_folder import Trained

Kind = Literal["length", "words"]
SUBJECTS = {
    "cldr": "dates, times, durations, measures, amounts and names of countries and languages",
    "phrases": "dates, times, durations, measures, amounts and names of countries and languages",
    "dates": "dates",
    "reverse": "digits",
}
"""All that the built-in corpora speak of."""


def translation_warnings(trained: Trained, parts: Sequence[str], longest: int) -> dict[Kind, str]:
    """What is to be said, by kind, of a text that was translated in these parts by a model trained on `longest`."""
    source = trained.tokenizers.source
    known = coverage(" ".join(parts), source)
    if known.is_foreign:  # which also makes it long: unknown words are spelt
        corpus = trained.recipe.data.corpus
        learnt = f"the model learnt nothing but {SUBJECTS[corpus]}" if corpus else "expect a guess"
        unknown = f"{len(known.unknown)} of {len(known.words)} words are unknown to the model"
        return {"words": f"{unknown}, such as {known.unknown[0][:30]!r}; {learnt}"}
    tokens = max(len(source.encode(part)) - 2 for part in parts)
    if tokens <= longest:
        return {}
    return {
        "length": f"a sentence of {tokens} tokens was translated whole, but the model was trained on at most {longest}"
        f"; --max-source {longest}, in Python max_source={longest}, has it translated in parts"
    }
