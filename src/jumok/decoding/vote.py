"""Models that write the same texts in different tokens vote: an output counts as much as it ranks high.

    v(y) = 1/n · Σᵢ 1 / rankᵢ(y)        rankᵢ: the place of y in the n-best list of model i; 1/∞ = 0 if it is not there

The mean reciprocal rank compares outputs alone, whatever their tokens and however sure of itself each model is.
"""

from collections import defaultdict
from collections.abc import Sequence


def by_mean_reciprocal_rank(ballots: Sequence[Sequence[str]]) -> list[tuple[str, float]]:
    """The outputs and their votes, most votes first; of equally good ones, that of the earlier model.

    >>> by_mean_reciprocal_rank([["a", "b"], ["b", "a"], ["b", "c"]])
    [('b', 0.8333333333333333), ('a', 0.5), ('c', 0.16666666666666666)]
    """
    votes: defaultdict[str, float] = defaultdict(float)
    for ballot in ballots:
        for rank, text in enumerate(dict.fromkeys(ballot), start=1):
            votes[text] += 1 / rank / len(ballots)
    return sorted(votes.items(), key=lambda vote: -round(vote[1], 9))
