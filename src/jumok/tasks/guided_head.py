"""The attention that a model was taught to align with, where its recipe has guided alignment."""

from jumok.analysis.alignment.word_attention import Look, all_looks
from jumok.model_folder import Trained
from jumok.training.loss import guided_layer


def taught_look(trained: Trained) -> Look | None:
    """The layer and head that guided alignment taught, a layer with one head having only that; None without it."""
    training = trained.recipe.training
    if not training.guided_alignment:
        return None
    every = all_looks(trained.model)
    layer = guided_layer(training.guided_layer, max(look.layer for look in every) + 1)
    heads = len({look.head for look in every if look.layer == layer} - {None})
    head = training.guided_head
    if head is not None or heads == 1:
        head = (head or 0) % heads
    informed = training.guided_context == "full"
    return Look(layer, head, training.guided_shift, informed, training.guided_null)
