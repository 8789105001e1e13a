"""The search for one text, watched: its best output so far, and at the end the whole tree."""

from jumok.data import EOS
from jumok.decoding import BeamTree, Node
from jumok.serve.messages import BeamNode
from jumok.serve.models import Served
from jumok.tasks.translator import Translation


class Watched:
    """Collects a tree for every part of a text."""

    def __init__(self, model: Served) -> None:
        self.model = model
        self.trees: dict[int, BeamTree] = {}

    def begin(self, part: int) -> None:
        """The search for a part begins, perhaps anew: a batch that fails is done again, part by part."""
        self.trees.pop(part, None)

    def grow(self, part: int, nodes: list[Node]) -> None:
        """One more step of the search for a part."""
        if nodes:
            self.trees.setdefault(part, BeamTree(EOS)).grow(nodes)

    def text(self) -> str:
        """The best output so far."""
        decode = self.model.translator.trained.tokenizers.target.decode
        return " ".join(decode(self.trees[part].best(self._penalty)[0]) for part in sorted(self.trees))

    def steps(self, translation: Translation) -> list[list[BeamNode]]:
        """The tree of a text that was not split, with the places of what was found in the end."""
        tree = self.trees.get(0, BeamTree(EOS))
        ranks = {one.pieces[0][1]: rank for rank, one in enumerate(translation.n_best or (translation,)) if one.pieces}
        return [
            [self._node(tree, step, index, node, ranks) for index, node in enumerate(nodes)]
            for step, nodes in enumerate(tree.steps)
        ]

    @property
    def _penalty(self) -> float:
        return self.model.translator.trained.recipe.decoding.length_penalty

    def _node(self, tree: BeamTree, step: int, index: int, node: Node, ranks: dict[tuple[int, ...], int]) -> BeamNode:
        tokenizer = self.model.translator.trained.tokenizers.target
        ids, ended = tree.ids(step, index), tree.is_end(node)
        return BeamNode(
            parent=node.parent if step else 0,
            token=tokenizer.pieces[node.token],
            text=tokenizer.decode(ids),
            log_prob=round(node.total, 5),
            score=round(tree.score(step, index, self._penalty), 5),
            ended=ended,
            rank=ranks.get(tuple(ids)) if ended else None,
        )
