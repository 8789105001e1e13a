"""The JSON of requests and responses; FastAPI validates requests by these, and generates the OpenAPI description."""

import binascii
from base64 import b64decode
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from jumok.analysis.alignment.word_attention import AlignmentHead
from jumok.analysis.draw.page import widget_data
from jumok.analysis.maps.attention_map import AttentionMap, MapKind
from jumok.analysis.scores.word_probabilities import OutputProbabilities
from jumok.data import Pair
from jumok.data.word_links import Link, format_word_links
from jumok.serve.models import Reads, ServedGenerator, ServedModel
from jumok.tasks.alternatives import next_word
from jumok.tasks.captioner import Caption
from jumok.tasks.results import Classification, Languages, MapOptions
from jumok.tasks.translated_text import Translation
from jumok.tasks.translation_warnings import WarningKind

MOST_TERMS = 1000
"""Terms of a request."""
SCORE_DIGITS = PROBABILITY_DIGITS = 4
"""Later digits depend on the other texts of a batch, because sums of other shapes round differently."""


def complete_characters(text: str) -> str:
    """Reject lone surrogates, which JSON can write ("\\ud800") but which are no characters."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("the text contains an unpaired surrogate")
    return text


def decode_base64(value: Any) -> bytes:
    """The bytes of a base64 text, which may begin as a data URL does."""
    if not isinstance(value, str):
        raise ValueError("the image must be a string in base64")
    try:
        return b64decode(value.partition(",")[2] if value.startswith("data:") else value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the image is not base64") from None


Text = Annotated[str, AfterValidator(complete_characters)]
ImageFile = Annotated[
    bytes, BeforeValidator(decode_base64), WithJsonSchema({"type": "string", "contentEncoding": "base64"})
]
NodeName = Annotated[int | Text, Field(description="The number or name of a node.")]
IMAGE_DESCRIPTION = "An image file (JPEG, PNG, WebP, …) in base64, or a data URL."
ModelName = Annotated[
    Text | None, Field(description="A name from `/api/models`; defaults to the first model for this task.")
]
Beam = Annotated[
    int | None, Field(ge=1, description="Beam size; 1 is greedy search. Defaults to the setting of the model.")
]
TagName = Annotated[Text | None, Field(description="A tag of the model in front of every text; defaults to none.")]
FromLanguage = Annotated[
    Text | None, Field(alias="from", description="Language of the texts, for a model of several languages.")
]
ToLanguage = Annotated[
    Text | None, Field(alias="to", description="Language to translate into, for a model of several languages.")
]
NBest = Annotated[int, Field(ge=1, description="Number of different outputs to return, best first.")]
ScoreField = Field(description="Log-probability divided by the length penalty.")


class Message(BaseModel):
    """Strict types, and no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SearchRequest(Message):
    """How to search for translations."""

    model: ModelName = None
    tag: TagName = None
    from_language: FromLanguage = None
    to_language: ToLanguage = None
    beam: Beam = None
    n_best: NBest = 1
    prefix: Annotated[Text, Field(description="Text that every translation begins with; it may end inside a word.")] = (
        ""
    )
    terms: Annotated[
        dict[Text, Text],
        Field(max_length=MOST_TERMS, description="Source terms, each with the target term that translations contain."),
    ] = {}


class TranslateRequest(SearchRequest):
    """Texts to translate."""

    text: Annotated[Text | list[Text], Field(description="One text, or a list of texts.")]


class TextRequest(SearchRequest):
    """One text to translate."""

    text: Text


class AlternativesRequest(Message):
    """A text, and the beginning of its translation that other words should follow."""

    text: Text
    prefix: Annotated[
        Text, Field(description="The translation so far. New words follow if it ends with a space or is empty.")
    ] = ""
    count: Annotated[int, Field(ge=1, description="Number of different words to return, at most.")] = 5
    model: ModelName = None
    tag: TagName = None
    from_language: FromLanguage = None
    to_language: ToLanguage = None
    beam: Beam = None


class CaptionRequest(Message):
    """An image to describe."""

    image: Annotated[ImageFile, Field(description=IMAGE_DESCRIPTION)]
    model: ModelName = None
    beam: Beam = None
    n_best: NBest = 1


class ClassifyRequest(Message):
    """A node to classify."""

    node: NodeName
    model: ModelName = None


class AttentionRequest(Message):
    """A text, an image or a node, and optionally the output to show; defaults to the output of the model."""

    text: Annotated[Text | None, Field(description="The source text, for a translator.")] = None
    image: Annotated[ImageFile | None, Field(description=f"For a captioner. {IMAGE_DESCRIPTION}")] = None
    node: Annotated[int | Text | None, Field(description="For a graph model: the number or name of a node.")] = None
    target: Annotated[Text | None, Field(description="A translation or caption that the model is made to write.")] = (
        None
    )
    target_ids: Annotated[
        list[int] | None, Field(description="The same as token ids, such as `ids` of a hypothesis.")
    ] = None
    kind: Annotated[
        MapKind,
        Field(description="`cross`: attention to the source; `encoder`, `decoder`: self-attention of a Transformer."),
    ] = "cross"
    words: Annotated[
        bool | None,
        Field(description="Weights of words; false for tokens. Defaults to tokens for a character-level tokenizer."),
    ] = None
    tokens: Annotated[bool, Field(description="With `words`, also return the weights of tokens.")] = False
    model: ModelName = None
    tag: TagName = None
    from_language: FromLanguage = None
    to_language: ToLanguage = None
    beam: Beam = None

    @model_validator(mode="after")
    def check_source_and_target(self) -> "AttentionRequest":
        """Exactly one source, and at most one target."""
        if sum(source is not None for source in (self.text, self.image, self.node)) != 1:
            raise ValueError("give one of text, image and node")
        if self.target is not None and self.target_ids is not None:
            raise ValueError("give either target or target_ids, not both")
        return self


class PageRequest(AttentionRequest):
    """The same, for an HTML page."""

    language: Annotated[Literal["en", "ko"], Field(description="Language of the page.")] = "en"


class AlignRequest(Message):
    """A sentence and its translation."""

    source: Text
    target: Text
    layer: Annotated[int | None, Field(ge=0, description="The layer to align with, counted from 0.")] = None
    head: Annotated[
        int | None,
        Field(ge=0, description="The head to align with, counted from 0; a layer alone uses the mean of its heads."),
    ] = None
    model: ModelName = None
    tag: TagName = None
    from_language: FromLanguage = None
    to_language: ToLanguage = None


def map_options(request: AttentionRequest) -> MapOptions:
    """The same as options of a task that draws maps."""
    return MapOptions(
        target=request.target,
        kind=request.kind,
        tokens=None if request.words is None else not request.words,
        beam=request.beam,
        tag=request.tag,
        languages=languages_of(request),
    )


def languages_of(request: SearchRequest | AlternativesRequest | AttentionRequest | AlignRequest) -> Languages:
    """The languages of the text and its translation; None for those of the model."""
    return request.from_language, request.to_language


class HypothesisAnswer(Message):
    """A translation or caption."""

    text: str
    score: Annotated[float, ScoreField]
    ids: Annotated[list[int], Field(description="Its tokens, for `/api/attention`; empty if the text was split.")]


class TextPart(Message):
    """A part of a long text, with its translation."""

    source: str
    text: str
    ids: Annotated[list[int], Field(description="The tokens of `text`, for `/api/attention`.")]


class Warning(Message):
    """A reason to doubt a translation."""

    kind: Annotated[
        WarningKind,
        Field(
            description="`length`: a sentence is longer than the training data; `words`: most words are unknown; "
            "`tag`: a tag that the text begins with, such as `>>kor<<`, was translated as text; "
            "`language`: the text names no target language, and the model has several; `output`: the translation "
            "consists mostly of unknown tokens; `terms`: the vocabulary cannot write a required term."
        ),
    ]
    message: str


class TranslationAnswer(Message):
    """The translation of one text."""

    source: str
    text: str
    score: Annotated[float, ScoreField]
    parts: Annotated[int, Field(description="More than 1 if the text was too long for the model and was split.")]
    pieces: Annotated[list[TextPart], Field(description="The parts of the text, with their translations.")]
    warnings: Annotated[list[Warning], Field(description="Reasons to doubt the translation.")]
    n_best: Annotated[list[HypothesisAnswer], Field(description="Best first; the first one is the translation.")]

    @classmethod
    def of(cls, translation: Translation, model: ServedGenerator[Any]) -> "TranslationAnswer":
        """The message for a translation."""
        decode = model.generator.tokenizer.decode
        return cls(
            source=translation.source,
            text=translation.text,
            score=round(translation.score, SCORE_DIGITS),
            parts=len(translation.pieces),
            pieces=[TextPart(source=part, text=decode(ids), ids=list(ids)) for part, ids, *_ in translation.pieces],
            warnings=[Warning(kind=kind, message=message) for kind, message in translation.warnings().items()],
            n_best=[
                HypothesisAnswer(text=output.text, score=round(output.score, SCORE_DIGITS), ids=_whole_ids(output))
                for output in translation.n_best or (translation,)
            ],
        )


class TranslateAnswer(Message):
    """The translations, in the order of the texts."""

    model: str
    translations: list[TranslationAnswer]


class Alternative(HypothesisAnswer):
    """A translation that goes on with another word."""

    word: Annotated[str, Field(description="The word after the prefix, or the rest of the word that it ends in.")]


class AlternativesAnswer(Message):
    """Translations that begin alike and go on with different words, best first."""

    model: str
    prefix: Annotated[str, Field(description="The beginning of all of them, as the model writes it.")]
    alternatives: list[Alternative]

    @classmethod
    def of(cls, translations: Sequence[Translation], prefix: str, model: ServedGenerator[Any]) -> "AlternativesAnswer":
        """The message for the translations after a prefix."""
        begun = model.generator.tokenizer.decode(model.generator.tokenizer.encode(prefix))
        alternatives = [
            Alternative(
                word=next_word(each.text, begun),
                text=each.text,
                score=round(each.score, SCORE_DIGITS),
                ids=_whole_ids(each),
            )
            for each in translations
        ]
        return cls(model=model.name, prefix=begun, alternatives=alternatives)


class CaptionAnswer(Message):
    """The caption of an image."""

    model: str
    text: str
    score: Annotated[float, ScoreField]
    n_best: Annotated[list[HypothesisAnswer], Field(description="Best first; the first one is the caption.")]

    @classmethod
    def of(cls, caption: Caption, model: ServedGenerator[Any]) -> "CaptionAnswer":
        """The message for a caption."""
        best = [
            HypothesisAnswer(text=output.text, score=round(output.score, SCORE_DIGITS), ids=list(output.ids))
            for output in caption.n_best or (caption,)
        ]
        return cls(model=model.name, text=caption.text, score=best[0].score, n_best=best)


class ClassAnswer(Message):
    """The predicted class."""

    predicted: Annotated[str, Field(alias="class", description="The most probable class.")]
    probability: float
    label: Annotated[str | None, Field(description="The true class; null if it is unknown.")]
    probabilities: Annotated[dict[str, float], Field(description="Probability of every class, most probable first.")]


def class_facts(classification: Classification) -> dict[str, Any]:
    """The fields of a ClassAnswer."""
    rounded = {name: round(share, PROBABILITY_DIGITS) for name, share in classification.probabilities.items()}
    predicted = classification.predicted
    return {
        "class": predicted,
        "probability": rounded[predicted],
        "label": classification.label,
        "probabilities": rounded,
    }


class AskedNode(Message):
    """The node of a request."""

    model: str
    node: Annotated[int | str, Field(description="As in the request.")]


class ClassifyAnswer(ClassAnswer, AskedNode):
    """The predicted class of a node."""


class AxisNames(Message):
    """The names of layers and heads."""

    layers: list[str]
    heads: list[str]


class WeightMatrix(Message):
    """Attention weights; every row sums to 1."""

    source: Annotated[
        list[str],
        Field(
            description="The words attended to: of the source; for an image, names of its regions, row by row; for a "
            "node, the node, its neighbours, and theirs."
        ),
    ]
    target: Annotated[list[str], Field(description="The words that attend; for a node, the node and neighbours.")]
    weights: Annotated[list[list[list[list[float]]]], Field(description="[layer][head][target][source]")]
    probabilities: Annotated[
        list[float] | None,
        Field(description="Probability of each target word given those before it; none for `encoder`."),
    ] = None


class ImageLayoutAnswer(Message):
    """The image of a caption, as the page draws it."""

    kind: Literal["image"]
    image: Annotated[str, Field(description="A data URL.")]
    width: int
    height: int
    rows: Annotated[int, Field(description="Regions from top to bottom.")]
    columns: Annotated[int, Field(description="Regions from left to right.")]
    box: Annotated[
        list[int], Field(description="The part that the model saw: top, left, bottom and right edge in pixels.")
    ]
    part: Annotated[list[float] | None, Field(description="The same as fractions of height and width.")] = None
    centres: Annotated[
        list[float] | None,
        Field(description="Centre of the first region and distance to the next, as fractions of that part."),
    ] = None
    dim: Annotated[float, Field(description="Brightness where a word does not attend.")]
    unseen: Annotated[float, Field(description="Brightness outside the part that the model saw.")]


class GraphLayoutAnswer(Message):
    """The nodes of a map, as the page draws them."""

    kind: Literal["graph"]
    numbers: Annotated[list[int], Field(description="The number of each source in the graph.")]
    classes: Annotated[list[str], Field(description="The true class of each source; ? if it is unknown.")]
    neighbours: Annotated[int, Field(description="Nodes that the first one can attend to besides itself.")]
    predicted: Annotated[str, Field(description="The predicted class of the first; empty if graphs are classified.")]
    probability: float


class AttentionAnswer(WeightMatrix):
    """The attention of each target word."""

    model: str
    names: AxisNames
    kind: Annotated[MapKind, Field(description="As in the request.")] = "cross"
    layout: Annotated[
        ImageLayoutAnswer | GraphLayoutAnswer | None,
        Field(description="The image, if the source is one; the nodes, if it is a node."),
    ] = None
    tokens: Annotated[
        WeightMatrix | None, Field(description="The weights of tokens, if requested and some word has several tokens.")
    ] = None
    text: Annotated[str, Field(description="The translation or caption; for a node, its class in words.")]
    classification: Annotated[
        ClassAnswer | None, Field(description="The predicted class, if the model classifies its input.")
    ] = None


def attention_answer(
    model: ServedModel,
    attention: AttentionMap,
    text: str,
    probabilities: OutputProbabilities | None,
    classification: Classification | None,
) -> dict[str, Any]:
    """An AttentionAnswer as plain lists: it is large and needs no validation."""
    plain = widget_data(attention)
    plain.pop("title", None)
    if classification is not None:
        plain["classification"] = class_facts(classification)
    if probabilities is not None and attention.kind != "encoder":
        plain["probabilities"] = _of_target(attention.target, probabilities)
        if attention.tokens is not None:
            plain["tokens"]["probabilities"] = _of_target(attention.tokens.target, probabilities)
    return {"model": model.name, **plain, "text": text}


def _of_target(target: Sequence[str], probabilities: OutputProbabilities) -> list[float]:
    """The probabilities of the words or tokens of a map; maps of an image have no end."""
    words = [word for word, _ in probabilities.words[: len(target)]]
    shown = probabilities.words if words == list(target) else probabilities.tokens
    return [round(probability, PROBABILITY_DIGITS) for _, probability in shown[: len(target)]]


class AlignAnswer(Message):
    """Links between words, or tokens if the tokenizer is character-level, as [source, target], counted from 0."""

    model: str
    source: list[str]
    target: list[str]
    links: list[list[int]]
    pharaoh: Annotated[str, Field(description='The links in Pharaoh format: "0-0 1-2".')]
    layer: Annotated[int, Field(description="The layer used.")]
    head: Annotated[int | None, Field(description="The head used; null for the mean of the layer's heads.")]

    @classmethod
    def of(cls, model: ServedGenerator[Any], pair: Pair, links: Collection[Link], used: AlignmentHead) -> "AlignAnswer":
        """The message for an alignment of words, separated by white space, or of a character-level model's tokens."""
        source, target = model.aligner.units(pair)
        return cls(
            model=model.name,
            source=source,
            target=target,
            links=[list(link) for link in sorted(links)],
            pharaoh=format_word_links(links),
            layer=used.layer,
            head=used.head,
        )


class BeamNode(Message):
    """A hypothesis that a step of the search kept."""

    parent: Annotated[int, Field(description="Index of the node that it extends in the previous step.")]
    token: Annotated[str, Field(description="The token appended; ▁ stands for a space.")]
    text: Annotated[str, Field(description="The whole output so far.")]
    log_prob: float
    score: Annotated[float, ScoreField]
    ended: Annotated[bool, Field(description="Whether the hypothesis is complete.")]
    rank: Annotated[int | None, Field(description="Rank in the final list, 0 for the best; null if not in it.")]


class BeamAnswer(Message):
    """The beam search as a tree."""

    model: str
    source: str
    text: str
    beam: int
    steps: list[list[BeamNode]]


class ModelAnswer(Message):
    """A model on this server."""

    name: str
    task: Annotated[str, Field(description="Such as `translation`, `captioning` or `node classification`.")]
    reads: Annotated[Reads, Field(description="The input, and the field of `/api/attention` that takes it.")]
    generates: Annotated[
        bool, Field(description="Whether it writes translations or captions by beam search; others only have maps.")
    ]
    parameters: int
    examples: Annotated[list[str], Field(description="Texts or nodes to try; for a captioner, images as data URLs.")]
    source_language: str | None = None
    target_language: str | None = None
    source_languages: Annotated[
        list[str], Field(description="Languages that `from` may name; none if it has one.")
    ] = []
    target_languages: Annotated[list[str], Field(description="Languages that `to` may name; none if it has one.")] = []
    layers: Annotated[
        int | None,
        Field(description="Layers that attend to the source; 0 for a model without attention, null if its maps tell."),
    ] = None
    heads: int | None = None
    kinds: Annotated[list[MapKind], Field(description="Kinds of attention that can be shown.")] = ["cross"]
    letters: Annotated[
        bool, Field(description="Whether a tokenizer is character-level; maps are then between tokens.")
    ] = False
    longest: Annotated[
        int | None, Field(description="Tokens that a translator reads at once; longer texts are split.")
    ] = None
    beam: Annotated[int | None, Field(description="Default beam size; null for a model that generates no text.")] = None
    corpus: Annotated[str | None, Field(description="The built-in corpus that the model was trained on, if any.")] = (
        None
    )
    tags: Annotated[list[str], Field(description="Tags of a language or domain that a translator knows.")] = []

    @classmethod
    def of(cls, model: ServedModel) -> "ModelAnswer":
        """The message for a model."""
        return cls(
            name=model.name,
            task=model.task,
            reads=model.reads,
            generates=isinstance(model, ServedGenerator),
            parameters=model.parameters,
            examples=list(model.examples),
            **(_generator_facts(model) if isinstance(model, ServedGenerator) else {}),
        )


def _generator_facts(model: ServedGenerator[Any]) -> dict[str, Any]:
    """The fields of a ModelAnswer that only models have that generate text."""
    generator = model.generator
    source, target = generator.languages
    sources, targets = generator.language_choices
    return {
        "source_language": source,
        "target_language": target,
        "source_languages": sources,
        "target_languages": targets,
        "layers": model.layers,
        "heads": model.heads,
        "kinds": list(model.kinds),
        "letters": generator.is_character_level,
        "longest": generator.longest,
        "beam": generator.decoding.beam,
        "corpus": generator.corpus or None,
        "tags": generator.tags,
    }


class LimitsAnswer(Message):
    """The limits of a request."""

    body_bytes: int
    image_bytes: int
    texts: int
    characters: int
    beam: int
    queue: int
    seconds: float


class ModelsAnswer(Message):
    """The models on this server."""

    models: list[ModelAnswer]
    limits: LimitsAnswer


class HealthAnswer(Message):
    """The server is running."""

    status: str
    version: str


class Problem(Message):
    """An error, in one line."""

    error: str


def _whole_ids(translation: Translation) -> list[int]:
    return list(translation.pieces[0][1]) if len(translation.pieces) == 1 else []
