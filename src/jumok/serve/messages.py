"""What requests and answers look like; the OpenAPI description is made from these."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def whole_characters(text: str) -> str:
    """JSON can spell half of a character, as in "\\ud800"; no text has one."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("it holds half of a surrogate pair, which is no character")
    return text


Text = Annotated[str, AfterValidator(whole_characters)]
ModelName = Annotated[Text | None, Field(description="One of `/api/models`; the first one if not given.")]
Beam = Annotated[
    int | None, Field(ge=1, description="Hypotheses kept at each step; 1 is greedy. The model's own if not given.")
]
NBest = Annotated[int, Field(ge=1, description="How many different translations, best first.")]


class Message(BaseModel):
    """Strict: 5 is not "5", and an unknown name is an error rather than a wish that is not heard."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TranslateRequest(Message):
    """Texts to translate."""

    text: Annotated[Text | list[Text], Field(description="One text, or a list of them.")]
    model: ModelName = None
    beam: Beam = None
    n_best: NBest = 1


class TextRequest(Message):
    """One text to translate while somebody watches."""

    text: Text
    model: ModelName = None
    beam: Beam = None
    n_best: NBest = 1


class AttentionRequest(Message):
    """A text, and perhaps what is to be said of it; without that, the model's own translation."""

    text: Text
    target: Annotated[Text | None, Field(description="A translation the model is made to say.")] = None
    target_ids: Annotated[
        list[int] | None, Field(description="The same as token ids, such as those of a hypothesis.")
    ] = None
    words: Annotated[bool, Field(description="Weights between words; false for tokens.")] = True
    tokens: Annotated[bool, Field(description="With `words`, also the weights between the tokens of these words.")] = (
        False
    )
    model: ModelName = None
    beam: Beam = None


class PageRequest(AttentionRequest):
    """The same, to be kept as a page."""

    language: Annotated[Literal["en", "ko"], Field(description="What the page speaks.")] = "en"


class AlignRequest(Message):
    """A sentence and its translation."""

    source: Text
    target: Text
    layer: Annotated[int | None, Field(ge=0, description="Look with this layer, counted from 0.")] = None
    head: Annotated[
        int | None, Field(ge=0, description="Look with this head, counted from 0; of a layer alone, with their mean.")
    ] = None
    model: ModelName = None


class Hypothesis(Message):
    """One translation."""

    text: str
    score: Annotated[float, Field(description="Log-probability over length to the length penalty.")]
    ids: Annotated[list[int], Field(description="Its tokens, for `/api/attention`; empty if the text was split.")]


class Part(Message):
    """A part of a text, and what was found for it."""

    source: str
    text: str
    ids: Annotated[list[int], Field(description="The tokens of `text`, for `/api/attention`.")]


class Warning(Message):
    """Why a translation is doubtful."""

    kind: Annotated[
        Literal["length", "words"],
        Field(description="A sentence longer than the model was trained on, or words that it does not know."),
    ]
    message: str


class TranslationAnswer(Message):
    """What was found for one text."""

    source: str
    text: str
    score: float
    parts: Annotated[int, Field(description="More than 1 where the text was too long to translate at once.")]
    pieces: Annotated[list[Part], Field(description="The parts of the text, with their translations.")]
    warnings: Annotated[list[Warning], Field(description="Why the translation is doubtful; empty if nothing says so.")]
    n_best: Annotated[list[Hypothesis], Field(description="Best first; the first is the translation.")]


class TranslateAnswer(Message):
    """The translations, in the order of the texts."""

    model: str
    translations: list[TranslationAnswer]


class Names(Message):
    """What layers and heads are called."""

    layers: list[str]
    heads: list[str]


class Matrix(Message):
    """Who looked, at what, and how much; every row of weights sums to 1."""

    source: list[str]
    target: list[str]
    weights: Annotated[list[list[list[list[float]]]], Field(description="[layer][head][target][source]")]


class AttentionAnswer(Matrix):
    """Where each target word looked."""

    model: str
    names: Names
    tokens: Annotated[
        Matrix | None, Field(description="The same between tokens, if asked for and some word has several.")
    ] = None
    text: Annotated[str, Field(description="The translation looked at.")]


class AlignAnswer(Message):
    """Links between words, as [source, target], counted from 0."""

    model: str
    source: list[str]
    target: list[str]
    links: list[list[int]]
    pharaoh: Annotated[str, Field(description='The same links as "0-0 1-2".')]
    layer: Annotated[int, Field(description="The layer looked with.")]
    head: Annotated[int | None, Field(description="The head looked with; null for the mean of the layer's heads.")]


class BeamNode(Message):
    """A hypothesis that a step of the search kept."""

    parent: Annotated[int, Field(description="Which node of the step before it extends; 0 in the first step.")]
    token: Annotated[str, Field(description="What it appends; ▁ stands for a space.")]
    text: Annotated[str, Field(description="The whole output so far.")]
    log_prob: float
    score: Annotated[float, Field(description="Log-probability over length to the length penalty.")]
    ended: bool
    rank: Annotated[int | None, Field(description="Its place in the final list, 0 for the best; null if it fell.")]


class BeamAnswer(Message):
    """The search as a tree."""

    model: str
    source: str
    text: str
    beam: int
    steps: list[list[BeamNode]]


class ModelAnswer(Message):
    """A model that is served."""

    name: str
    parameters: int
    source_language: str | None
    target_language: str | None
    layers: Annotated[int, Field(description="Layers that look at the source; 0 for a model without attention.")]
    heads: int
    longest: Annotated[int, Field(description="Tokens it reads at once; longer texts are split.")]
    beam: Annotated[int, Field(description="Hypotheses kept at each step unless asked otherwise.")]
    corpus: Annotated[str | None, Field(description="The built-in corpus it learnt from, where it learnt from one.")]
    examples: list[str]


class LimitsAnswer(Message):
    """The most that one request may ask for."""

    body_bytes: int
    texts: int
    characters: int
    beam: int
    queue: int
    seconds: float


class ModelsAnswer(Message):
    """The models; the first one answers when none is named."""

    models: list[ModelAnswer]
    limits: LimitsAnswer


class HealthAnswer(Message):
    """Alive."""

    status: str
    version: str


class Problem(Message):
    """Why there is no answer."""

    error: str
