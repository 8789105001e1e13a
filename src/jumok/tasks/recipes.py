"""The recipes of the three tasks: the sections of each, and the checks of settings that depend on each other."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from jumok.data import BatchConfig, TokenizerConfig
from jumok.data.filters import FilterConfig
from jumok.data.sources import DataConfig
from jumok.data.tokenizer import OneSidedTokenizer
from jumok.decoding.config import DecodingConfig, SearchConfig
from jumok.errors import ConfigError
from jumok.graphs.graph import GraphConfig
from jumok.graphs.network import GatConfig
from jumok.graphs.sampling import SamplingConfig
from jumok.images.augment import AugmentConfig
from jumok.images.encoder import EncoderConfig as ImageEncoderConfig
from jumok.images.pairs import ImagesConfig
from jumok.models.build import AnySourceDecoderConfig, DecoderConfig, EncoderConfig
from jumok.models.config import TextModelConfig
from jumok.models.rnn.decoder import RnnDecoderBase
from jumok.models.transformer.decoder import TransformerDecoderConfig
from jumok.settings import Fraction, NonNegativeFloat, NonNegativeInt, OnlyWith, PositiveFloat
from jumok.training.config import Schedule, TrainingConfig
from jumok.training.guided_alignment import GuidedAlignment, GuidedContext

TextMetric = Literal["bleu", "chrf", "loss", "exact_match", "ser", "wer"]


# Translation


@dataclass(frozen=True, kw_only=True)
class TranslationTraining(TrainingConfig):
    """Training of a translation model, with guided alignment (Chen et al. 2016; Garg et al. 2019)."""

    metric: TextMetric = "chrf"
    """Score that selects the best checkpoint: "bleu", "chrf", "exact_match", or (lower is better) "loss", "ser", "wer".

    The lower loss decides between equal scores.
    """
    start_from: str = ""
    """Model folder to fine-tune: start from its vocabulary, architecture and weights; "" starts from scratch."""
    r_drop: NonNegativeFloat = 0.0
    """Weight of R-Drop, the divergence between two passes with different dropout, such as 5; 0 turns it off."""
    guided_alignment: NonNegativeFloat = 0.0
    """Weight of the guided alignment loss, which trains one layer's attention on data.alignments; 0 for none."""
    guided_layer: Annotated[int | None, OnlyWith("guided_alignment")] = None
    """Decoder layer of guided alignment, counted from 0, or -1 for the last; defaults to the last but one."""
    guided_head: Annotated[int | None, OnlyWith("guided_alignment")] = None
    """Head of guided alignment, counted from 0, or -1 for the last; defaults to the mean of all heads."""
    guided_shift: Annotated[bool, OnlyWith("guided_alignment")] = True
    """Align the step that reads a target word, which aligns best; false aligns the step that predicts it."""
    guided_context: Annotated[GuidedContext, OnlyWith("guided_alignment")] = "causal"
    """Target words the decoder sees for guided alignment: those so far ("causal") or all of them ("full").

    "full" needs a Transformer decoder and a second pass through it, which `jumok align` then makes as well.
    """
    guided_null: Annotated[bool, OnlyWith("guided_alignment")] = False
    """Train target words without a link to attend to the end of the source; `jumok align` then gives them no link."""

    @property
    def guide(self) -> GuidedAlignment | None:
        """The attention that is trained on word links; None without guided alignment."""
        if not self.guided_alignment:
            return None
        return GuidedAlignment(
            weight=self.guided_alignment,
            layer=self.guided_layer,
            head=self.guided_head,
            shift=self.guided_shift,
            context=self.guided_context,
            null=self.guided_null,
        )

    def hint_to_train_further(self, folder: object) -> str:
        """The end of a message: how to train further than a cosine schedule goes."""
        return f'; to train further, begin another run with training.start_from = "{folder}"'


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe:
    """Everything that decides the result of a run: the data, the model, how it is trained and how it is used."""

    data: DataConfig
    tokenizer: TokenizerConfig
    filter: FilterConfig
    batch: BatchConfig
    encoder: EncoderConfig
    decoder: DecoderConfig
    training: TranslationTraining
    decoding: DecodingConfig

    def __post_init__(self) -> None:
        for config in (self.encoder, self.decoder):
            check_positions(config, self.filter.max_length, "filter.max_length")
        check_edits(self.tokenizer, self.decoder)
        if self.data.has_links and not self.training.guided_alignment:
            raise ConfigError(
                "data.alignments is set, but training.guided_alignment = 0 ignores it; set that to 0.1, for example"
            )
        if self.training.guided_context == "full" and self.decoder.kind != "transformer":
            raise ConfigError(
                'training.guided_context = "full" needs decoder.kind = "transformer": a recurrent decoder reads its '
                'target word by word; set it to "causal"'
            )
        if self.training.guided_alignment:
            self._check_guide()

    def _check_guide(self) -> None:
        if not self.data.has_links:
            raise ConfigError(
                f"training.guided_alignment = {self.training.guided_alignment} needs word links of the training pairs: "
                "set data.alignments to a file in Pharaoh format, as `jumok align` writes"
            )
        check_attention(self.decoder, "training.guided_alignment")
        decoder = self.decoder
        layers, heads = (decoder.layers, decoder.heads) if isinstance(decoder, TransformerDecoderConfig) else (1, 1)
        for name, count in (("layer", layers), ("head", heads)):
            index = getattr(self.training, f"guided_{name}")
            if index is not None and not -count <= index < count:
                raise ConfigError(
                    f"training.guided_{name} = {index}, but the decoder's attention has the {name}s 0 to {count - 1}"
                )


# Captioning


SHORT = SearchConfig(max_length=60)
"""The search for captions, which are shorter than translations."""


@dataclass(frozen=True, kw_only=True)
class CaptionTraining(TrainingConfig):
    """Training of a captioner."""

    metric: TextMetric = "bleu"
    """Score that selects the best checkpoint: "bleu", "chrf", "exact_match", or (lower is better) "loss", "ser", "wer".

    The lower loss decides between equal scores.
    """
    doubly_stochastic: NonNegativeFloat = 0.0
    """Weight of the doubly stochastic attention loss (Xu et al. 2015)."""


@dataclass(frozen=True, kw_only=True)
class CaptionRecipe:
    """Everything that decides the result of a run: images and captions, the model, how it is trained and used."""

    images: ImagesConfig
    tokenizer: OneSidedTokenizer
    augment: AugmentConfig
    batch: BatchConfig
    encoder: ImageEncoderConfig
    decoder: AnySourceDecoderConfig
    training: CaptionTraining
    decoding: SearchConfig = SHORT

    def __post_init__(self) -> None:
        if self.augment.flip and self.images.scenes:
            raise ConfigError(
                "augment.flip = true mirrors images, but captions of scenes mention left and right; set flip = false"
            )
        if self.decoder.kind == "transformer":  # the limit of another is one of regions, not of captions
            check_positions(self.decoder, self.images.max_length, "images.max_length")
        if self.training.doubly_stochastic:
            check_attention(self.decoder, "training.doubly_stochastic")


# Node classification


@dataclass(frozen=True, kw_only=True)
class GraphTraining(TrainingConfig):
    """Training on a graph: a constant learning rate, without warm-up or label smoothing."""

    schedule: Schedule = "constant"
    """Learning rate schedule after the warm-up: "constant", "inverse_sqrt", "cosine" (to 0 at `steps`) or "noam"."""
    warmup: NonNegativeInt = 0
    """Steps over which the learning rate rises linearly from 0 to its peak."""
    label_smoothing: Fraction = 0.0
    """Label smoothing: share of the probability spread over all classes."""
    metric: Literal["loss", "accuracy"] = "loss"
    """Score that selects the best checkpoint: "loss" or "accuracy"; the lower loss decides between equal scores."""
    consistency: NonNegativeFloat = 0.0
    """Weight of the loss that draws passes with different dropout to agree on all nodes, such as 1; 0 makes one pass.

    Nodes without labels count as well (Feng et al. 2020).
    """
    passes: Annotated[int, Ge(2), OnlyWith("consistency")] = 2
    """Passes per step with `consistency`."""
    temperature: Annotated[PositiveFloat, OnlyWith("consistency")] = 0.5
    """With `consistency`, temperature that sharpens the passes' mean; below 1 it favours the likeliest class."""
    confidence: Annotated[Fraction, OnlyWith("consistency")] = 0.0
    """With `consistency`, probability that the likeliest class of a node must exceed for the node to count."""
    edge_supervision: NonNegativeFloat = 0.0
    """Weight of the loss that trains attention scores to tell edges from pairs of nodes without one; 0 for none.

    Such as 2, with `network.kind = "supergat"` (Kim and Oh 2021).
    """
    edge_share: Annotated[float, Gt(0), Le(1), OnlyWith("edge_supervision")] = 0.8
    """With `edge_supervision`, share of the edges that a step samples."""
    negative_pairs: Annotated[PositiveFloat, OnlyWith("edge_supervision")] = 0.5
    """With `edge_supervision`, pairs of nodes without an edge that a step samples for each of its edges."""


@dataclass(frozen=True, kw_only=True)
class GraphRecipe:
    """Everything that decides the result of a run: the graph, the network, what a step sees, how it is trained."""

    graph: GraphConfig
    network: GatConfig
    sampling: SamplingConfig
    training: GraphTraining

    def __post_init__(self) -> None:
        layers = self.network.layers
        for name in ("fanout", "evaluation_fanout"):
            fanout = getattr(self.sampling, name)
            if fanout and len(fanout) != layers:
                raise ConfigError(
                    f"{self.sampling.shown(name)} has {len(fanout)} numbers, but network.layers = {layers}; give one "
                    "number per layer"
                )
        if self.sampling.fanout and self.network.pooling:
            raise ConfigError("sampling.fanout applies only to node classification; set it to [] to classify graphs")
        if self.sampling.fanout and self.network.reach > layers:
            raise ConfigError(
                f"{self.network.shown('hops')} reaches {self.network.reach} hops, but {self.sampling.shown('fanout')} "
                f"samples {layers}; set network.hops = [] or sampling.fanout = []"
            )
        if self.sampling.fanout and self.network.degree_exponent:
            raise ConfigError(
                f"{self.network.shown('degree_exponent')} needs all neighbours of a node, but "
                f"{self.sampling.shown('fanout')} samples some; set network.degree_exponent = 0 or sampling.fanout = []"
            )
        for name in ("consistency", "edge_supervision"):
            if self.sampling.fanout and getattr(self.training, name):
                raise ConfigError(
                    f"{self.training.shown(name)} needs all nodes in every step, but "
                    f"{self.sampling.shown('fanout')} samples some; set training.{name} = 0 or sampling.fanout = []"
                )
        if self.training.edge_supervision and self.network.pooling:
            raise ConfigError(
                f"{self.training.shown('edge_supervision')} applies only to node classification; set it to 0 to "
                "classify graphs"
            )
        if self.training.consistency and not self.network.drops:
            raise ConfigError(
                f"{self.training.shown('consistency')} needs passes with different dropout, but the network has none; "
                "set network.node_dropout = 0.5 or training.consistency = 0"
            )


# Checks of several recipes


def check_positions(config: TextModelConfig, longest: int, setting: str) -> None:
    """Raise a ConfigError if an encoder or decoder has fewer learned positions than the longest text needs."""
    if config.limit is not None and config.limit <= longest:
        raise ConfigError(
            f"{config.section}.longest = {config.limit} positions are too few for {setting} = {longest} tokens and "
            f"their end; set {config.section}.longest = {longest + 1} or {setting} = {config.limit - 1}"
        )


def check_edits(tokenizer: TokenizerConfig, decoder: DecoderConfig) -> None:
    """Raise a ConfigError if a transducer has no edits to learn, or another decoder has."""
    if decoder.kind == "transducer" and not tokenizer.edits:
        raise ConfigError('decoder.kind = "transducer" writes edits of the source; set tokenizer.edits = true')
    if tokenizer.edits and decoder.kind != "transducer":
        raise ConfigError(
            f'tokenizer.edits = true needs decoder.kind = "transducer", but it is "{decoder.kind}"; set edits = false'
        )


def check_attention(decoder: DecoderConfig | AnySourceDecoderConfig, setting: str) -> None:
    """Raise a ConfigError for a setting that trains attention if the decoder has none that learns."""
    if decoder.kind == "transducer":
        raise ConfigError(f"{setting} trains attention, but a transducer has no learned attention; set it to 0")
    if isinstance(decoder, RnnDecoderBase) and decoder.attention == "none":
        raise ConfigError(f'{setting} needs a decoder with attention, but decoder.attention = "none"; set it to 0')
