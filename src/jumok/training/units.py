"""How a score is written for people: called as the field calls it, with its unit."""

NAMES = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match", "wer": "WER"}
PERCENT = ("exact_match", "wer", "accuracy")
"""BLEU and chrF also go to 100, but are no share of anything."""


def score_name(name: str) -> str:
    """ "exact match" for exact_match."""
    return NAMES.get(name, name)


def score_value(name: str, value: float) -> str:
    """ "97.3%" for an exact match of 97.3; "validation accuracy" is an accuracy, too."""
    last = name.split()[-1] if name else name
    return f"{value:.4g}" + ("%" if last in PERCENT else "")


def score_text(name: str, value: float) -> str:
    """ "exact match 97.3%", "BLEU 31.4", "loss 1.32"."""
    return f"{score_name(name)} {score_value(name, value)}"
