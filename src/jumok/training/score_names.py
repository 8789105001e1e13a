"""What is known of scores by their names: how texts show them, and which are better when they are lower."""

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact_match": "exact match", "ser": "SER", "wer": "WER"}
PERCENT = frozenset({"exact_match", "ser", "wer", "accuracy"})
"""BLEU and chrF also go to 100, but are no share of anything."""
LOWER_IS_BETTER = frozenset({"loss", "ter", "ser", "wer"})


def score_name(name: str) -> str:
    """ "exact match" for exact_match."""
    return NAMES.get(name, name)


def score_unit(name: str) -> str:
    """ "%" for shares, "" for other scores."""
    return "%" if _kind(name) in PERCENT else ""


def lower_is_better(name: str) -> bool:
    """Whether a lower value of a score is a better one."""
    return _kind(name) in LOWER_IS_BETTER


def score_value(name: str, value: float) -> str:
    """ "97.3%" for an exact match of 97.3."""
    return f"{value:.4g}{score_unit(name)}"


def score_text(name: str, value: float) -> str:
    """ "exact match 97.3%", "BLEU 31.4", "loss 1.32"."""
    return f"{score_name(name)} {score_value(name, value)}"


def _kind(name: str) -> str:
    """The score without what it was measured on: "accuracy" for "validation accuracy"."""
    return name.rpartition(" ")[2]
