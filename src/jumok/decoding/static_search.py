"""Beam search whose steps run on the device alone: no step waits for the host, and on a GPU each is one CUDA graph.

It finds what `beam_search` finds. Sentences, source length and number of steps are rounded up to a few sizes, so that
few graphs are recorded. Where there are more sentences than rows, those that wait take the rows of finished ones. When
none waits, finished sentences are dropped as soon as half of the rows are theirs.
"""

import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary, proxy

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.decoding.beam_tensors import Beams, History, Rules
from jumok.decoding.config import SearchConfig
from jumok.decoding.extend import extend, outputs_of
from jumok.decoding.hypotheses import Hypothesis, Specials, Survivors
from jumok.models.encoder_decoder import Decoder, Encoding

LAG = 2
"""Steps that are launched before the host waits to hear which sentences an earlier one finished."""
REFILLED_SHARE = 0.25
"""Share of the rows into which waiting sentences are put at once: fewer mean more copies, more leave rows idle."""
SMALLEST = 8
"""Rows below which nothing is gained by dropping finished sentences."""
MOST_SEARCHES = 24
"""Shapes whose caches and graphs are kept for each decoder."""
SHARE = 0.25
"""Share of the GPU's memory that they may take."""


class SearchShape(NamedTuple):
    """The sizes that a search is recorded for."""

    sentences: int
    source: int
    capacity: int
    dtype: torch.dtype
    rules: Rules


class StaticSearch:
    """A beam search of one shape: what its steps read and write, and on a GPU the graphs of its beginning and step."""

    def __init__(self, decoder: Decoder, encoding: Encoding, shape: SearchShape) -> None:
        states = encoding.states
        self.decoder: Decoder = decoder  # a proxy
        self.shape = shape
        self.encoding = _blank(encoding, shape)
        self.state = decoder.static_state(self.encoding, beam=shape.rules.beam, capacity=shape.capacity)
        # Scores add up over many steps: in float32 whatever the model computes in.
        dtype = torch.promote_types(states.dtype, torch.float32)
        self.beams = Beams.empty(
            shape.sentences, shape.rules, capacity=shape.capacity, device=states.device, dtype=dtype
        )
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def begin(self, encoding: Encoding, longest: Int[Tensor, " sentence"]) -> None:
        """Start again with other sources, of at most as many sentences and items; further rows are finished."""
        for buffer, part in zip(self.encoding, encoding, strict=True):
            if buffer is not None and part is not None:
                buffer.zero_()
                buffer[tuple(map(slice, part.shape))].copy_(part)
        self.beams.longest.fill_(-1)
        self.beams.longest[: len(longest)].copy_(longest)
        if self.graphs:
            self.graphs[0].replay()
        else:
            self._begin()

    def step(self) -> None:
        """Append a token to every hypothesis."""
        if self.graphs:
            self.graphs[1].replay()
        else:
            self._step()

    def _begin(self) -> None:
        self.state.begin(self.encoding)
        specials = self.shape.rules.specials
        self.beams.begin(specials.bos)
        if specials.first is not None:
            self.state.advance(self.beams.tokens, self.beams.parents)
            self.beams.append(specials.first)

    def _step(self) -> None:
        hidden = self.state.advance(self.beams.tokens, self.beams.parents)
        extend(self.beams, self.decoder.logits(hidden), self.shape.rules)

    def take(self, other: "StaticSearch", sentences: Int[Tensor, " sentence"]) -> None:
        """Continue some sentences of a larger search."""
        self.state.take(other.state, sentences)
        self.beams.take(other.beams, sentences)

    def put(self, other: "StaticSearch", rows: Int[Tensor, " row"]) -> None:
        """Replace the sentences of these rows by the first ones of another search, which has just begun."""
        self.state.put(other.state, rows)
        self.beams.put(other.beams, rows)

    def record(self, pool: Any, stream: torch.cuda.Stream) -> None:
        """Record both graphs."""
        self._begin()  # once as they are written: kernels are compiled, which cannot happen while they are recorded
        self._step()
        torch.cuda.synchronize(stream.device)
        with torch.cuda.stream(stream):
            self.graphs = [recorded(part, pool) for part in (self._begin, self._step)]


_recording = threading.Lock()
"""Held by the thread that records a graph: all threads share the generator of random numbers."""


def recorded(work: Callable[[], None], pool: Any) -> torch.cuda.CUDAGraph:
    """The work, which draws no random numbers, as a graph; it runs on the current stream, which is not the default one.

    A recording that breaks off, as for lack of memory, spoils the state of the generator of random numbers. It gets a
    state of its own, so that training can go on.
    """
    generator, graph = torch.cuda.default_generators[torch.cuda.current_device()], torch.cuda.CUDAGraph()
    with _recording:
        state = generator.graphsafe_get_state()
        generator.graphsafe_set_state(generator.clone_state())
        try:
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        finally:
            generator.graphsafe_set_state(state)
    return graph


def _blank(encoding: Encoding, shape: SearchShape) -> Encoding:
    """An empty encoding of the sizes of a shape."""
    states, visible, summary, tokens = encoding
    rows, items = shape.sentences, shape.source
    return Encoding(
        states.new_zeros(rows, items, states.shape[-1]),
        visible.new_zeros(rows, items),
        summary.new_zeros(rows, summary.shape[-1]),
        None if tokens is None else tokens.new_zeros(rows, items),
    )


class NotRecordedError(Exception):
    """A step of the decoder cannot be recorded, or there is no memory for it."""


class Searches:
    """The searches of a decoder by shape, the one that was used last at the end; one runs at a time."""

    refused: bool = False
    """Whether a step could not be recorded; the decoder is then searched step by step."""
    room: float = float("inf")
    """Bytes that caches and graphs may take."""

    def __init__(self, decoder: Decoder, device: torch.device) -> None:
        self.decoder = cast(Decoder, proxy(decoder))
        self.device, self.lock = device, threading.Lock()
        self.by_shape: OrderedDict[SearchShape, StaticSearch] = OrderedDict()
        self.sizes: dict[SearchShape, int] = {}
        if device.type == "cuda":
            self.pool = torch.cuda.graph_pool_handle()
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self.room = SHARE * torch.cuda.get_device_properties(device).total_memory

    def get(self, shape: SearchShape, encoding: Encoding) -> StaticSearch:
        """The search of a shape, to be begun; made and recorded if it is the first of its shape."""
        search = self.by_shape.get(shape)
        if search is not None:
            self.by_shape.move_to_end(shape)
            return search
        on_gpu = self.device.type == "cuda"
        before = torch.cuda.memory_allocated(self.device) if on_gpu else 0
        try:
            search = StaticSearch(self.decoder, encoding, shape)
        except torch.OutOfMemoryError as error:
            self._forget_all()
            raise NotRecordedError from error
        if on_gpu:
            self._record(search)
            self.sizes[shape] = torch.cuda.memory_allocated(self.device) - before
        self.by_shape[shape] = search
        self._forget()
        return search

    def _record(self, search: StaticSearch) -> None:
        try:
            search.record(self.pool, self.stream)
        except Exception as error:  # whatever a decoder does that cannot be recorded, it can be run
            self._forget_all()
            self.refused = not isinstance(error, torch.OutOfMemoryError)
            warnings.warn(
                f"the search runs step by step, which is many times slower, because its steps cannot be recorded as a "
                f"CUDA graph: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
                RuntimeWarning,
                stacklevel=2,
            )
            raise NotRecordedError from error

    def _forget(self) -> None:
        """Drop those that have not been used for the longest time, if they are too many or too large."""
        while len(self.by_shape) > MOST_SEARCHES or (sum(self.sizes.values()) > self.room and len(self.by_shape) > 1):
            shape, _ = self.by_shape.popitem(last=False)
            self.sizes.pop(shape, None)

    def _forget_all(self) -> None:
        self.by_shape.clear()
        self.sizes.clear()


_searches: "WeakKeyDictionary[Decoder, Searches]" = WeakKeyDictionary()


def searches_of(decoder: Decoder, device: torch.device) -> Searches:
    """Those of a decoder on a device; they live as long as the decoder stays there."""
    searches = _searches.get(decoder)
    if searches is None or searches.device != device:
        searches = _searches[decoder] = Searches(decoder, device)
    return searches


def rounded(number: int, *, least: int) -> int:
    """The next of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, …: powers of two, and from 16 on the numbers half way."""
    power = max(least, 1 << max(number - 1, 0).bit_length())
    half = power // 4 * 3
    return half if half >= number and power > 16 and half >= least else power


def static_search(
    decoder: Decoder,
    encoding: Encoding,
    specials: Specials,
    config: SearchConfig,
    longest: Int[Tensor, " sentence"],
    *,
    n_best: int,
    observe: Callable[[Survivors], None] | None = None,
    check: Callable[[], None] | None = None,
    rows: int | None = None,
) -> list[list[Hypothesis]]:
    """What `beam_search` finds, for a decoder that has a static state; `longest` is on the CPU.

    A sentence with a probability that is not a finite number has no hypothesis. About `rows` sentences are searched at
    once, and all of them by default or for an observer. Raises NotRecordedError, with nothing observed, where a GPU
    cannot record the steps.
    """
    sentences, source = encoding.visible.shape
    steps, most = int(longest.max()) + 1, sentences
    if rows is not None and rows < sentences and observe is None:
        steps, most = steps + 1, max(rows, 2)  # finished sentences stay at the last step until they are replaced
    shape = SearchShape(
        rounded(most, least=1),
        rounded(source, least=16),
        rounded(steps, least=32),
        encoding.states.dtype,
        Rules.of(config, specials, n_best),
    )
    searches = searches_of(decoder, encoding.states.device)
    if searches.refused:
        raise NotRecordedError
    # Tensors made in inference mode could not be written in later searches outside of it.
    with searches.lock, torch.inference_mode(False), torch.no_grad():
        return RunningSearch(searches, shape, encoding, longest).outputs(observe, check)


class Stage(NamedTuple):
    """A search, and the sentences in its first rows."""

    search: StaticSearch
    sentences: list[int]


class RunningSearch:
    """The search for the outputs of all sentences of an encoding, of which some may wait for a row."""

    def __init__(
        self, searches: Searches, shape: SearchShape, encoding: Encoding, longest: Int[Tensor, " sentence"]
    ) -> None:
        self.searches, self.encoding = searches, encoding
        self.limits, self.longest = longest.tolist(), longest.to(encoding.states.device)
        self.taken = self.written = 0 if shape.rules.specials.first is None else 1  # a first token, if there is one
        self.last, self.next, self.drops = 0, 0, True
        self.histories: list[tuple[list[int], History]] = []
        if len(self.limits) > shape.sentences:  # record both before the first step, or neither
            searches.get(shape._replace(sentences=self._refilled_at_once(shape)), encoding)
        sentences = self._begin_next(search := searches.get(shape, encoding))
        self.stage, self.watch = Stage(search, sentences), FinishWatch(search.beams)

    @property
    def is_waiting(self) -> bool:
        """Whether some sentence has no row yet."""
        return self.next < len(self.limits)

    def outputs(
        self, observe: Callable[[Survivors], None] | None, check: Callable[[], None] | None
    ) -> list[list[Hypothesis]]:
        """Take all steps, on fewer rows when no sentence waits and some have finished."""
        if self.written and observe is not None:
            observe(_survivors(self.stage, self.written))
        while self.taken < self.last or self.is_waiting:
            self.stage.search.step()
            self.taken += 1
            if observe is not None and len((kept := _survivors(self.stage, self.taken)).sentences):
                observe(kept)
            if check is not None:
                check()
            if not self._go_on(self.watch.after_step(self.stage.sentences)):
                break
        self._read(range(len(self.stage.sentences)))
        return self._outputs()

    @staticmethod
    def _refilled_at_once(shape: SearchShape) -> int:
        return rounded(int(REFILLED_SHARE * shape.sentences), least=1)

    def _begin_next(self, search: StaticSearch) -> list[int]:
        """Begin a search with the next sentences, as many as it has rows; their numbers."""
        start, end = self.next, min(self.next + search.shape.sentences, len(self.limits))
        search.begin(self.encoding.range(start, end), self.longest[start:end])
        self.next, self.last = end, max(self.last, self.taken + max(self.limits[start:end]) + 1 - self.written)
        return list(range(start, end))

    def _go_on(self, finished: set[int] | None) -> bool:
        """Make use of the rows of sentences that are known to be finished; False if all are."""
        sentences = self.stage.sentences
        if self.taken >= self.last:
            finished = set(sentences)
        if finished is None:
            return True
        rows = [row for row, sentence in enumerate(sentences) if sentence not in finished]
        if self.is_waiting:
            self._refill([row for row, sentence in enumerate(sentences) if sentence in finished])
            return True
        if rows:
            self._drop_all_but(rows)
        return bool(rows)

    def _refill(self, free: list[int]) -> None:
        """Put waiting sentences into free rows, if they are enough."""
        search, sentences = self.stage
        size = self._refilled_at_once(search.shape)
        while self.is_waiting and len(free) >= size:
            smaller = self.searches.get(search.shape._replace(sentences=size), self.encoding)
            numbers = self._begin_next(smaller)
            rows, free = free[: len(numbers)], free[len(numbers) :]
            self._read(rows)
            search.put(smaller, self._on_device(rows))
            now_in = dict(zip(rows, numbers, strict=True))
            sentences = [now_in.get(row, sentence) for row, sentence in enumerate(sentences)]
            self.stage = Stage(search, sentences)

    def _drop_all_but(self, rows: list[int]) -> None:
        """Continue these rows in a smaller search, if half of the rows suffice; its further rows repeat one of them."""
        search, sentences = self.stage
        size = rounded(len(rows), least=1)
        if not self.drops or search.shape.sentences <= SMALLEST or 2 * size > search.shape.sentences:
            return
        try:
            smaller = self.searches.get(search.shape._replace(sentences=size), self.encoding)
        except NotRecordedError:  # the search goes on as it is
            self.drops = False
            return
        kept = set(rows)
        self._read([row for row in range(len(sentences)) if row not in kept])
        smaller.take(search, self._on_device(rows + rows[-1:] * (size - len(rows))))
        self.stage, self.watch = Stage(smaller, [sentences[row] for row in rows]), FinishWatch(smaller.beams)

    def _read(self, rows: Sequence[int]) -> None:
        """Copy what the steps of these rows kept, on the device; the host reads it when all sentences are finished."""
        search, sentences = self.stage
        history = search.beams.history(self._on_device(rows), steps=max(self.limits) + 1)
        self.histories.append(([sentences[row] for row in rows], history))

    def _on_device(self, rows: Sequence[int]) -> Int[Tensor, " row"]:
        """Numbers of rows, copied without waiting for the device."""
        numbers, device = torch.tensor(rows, dtype=torch.long), self.longest.device
        return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers

    def _outputs(self) -> list[list[Hypothesis]]:
        groups, histories = zip(*self.histories, strict=True)
        search, numbers = self.stage.search, [number for group in groups for number in group]
        outputs = outputs_of(History.joined(histories), search.shape.rules, search.beams.divisors)
        by_number = dict(zip(numbers, outputs, strict=True))
        return [by_number[number] for number in range(len(self.limits))]


def _survivors(stage: Stage, step: int) -> Survivors:
    """What a step kept for the sentences that were searched until then."""
    beams, rows = stage.search.beams, len(stage.sentences)
    steps = beams.steps[:rows]
    searched = ((steps == 0) | (steps == step)).nonzero().flatten()
    parents, tokens, totals = (
        past[step - 1, searched] for past in (beams.past_parents, beams.past_tokens, beams.past_totals)
    )
    numbers = torch.tensor(stage.sentences, device=steps.device)[searched]
    return Survivors(numbers, parents.long(), tokens.long(), totals)


class FinishWatch:
    """Which sentences are finished, as the host sees it: on a GPU as it was some steps ago, so that none waits."""

    def __init__(self, beams: Beams) -> None:
        self.steps = beams.steps
        self.on_their_way: deque[tuple[list[int], Tensor, torch.cuda.Event]] = deque()

    def after_step(self, sentences: list[int]) -> set[int] | None:
        """Those known to be finished of the sentences now in the rows, and of earlier ones; None if it is not known."""
        if self.steps.device.type != "cuda":
            return finished_of(sentences, self.steps)
        copied = torch.empty(self.steps.shape, dtype=self.steps.dtype, pin_memory=True)
        copied.copy_(self.steps, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.on_their_way.append((sentences, copied, event))
        if len(self.on_their_way) <= LAG:
            return None
        sentences, copied, event = self.on_their_way.popleft()
        event.synchronize()
        return finished_of(sentences, copied)


def finished_of(sentences: list[int], steps: Int[Tensor, " row"]) -> set[int]:
    """Those of the sentences in the first rows that took a known number of steps."""
    return {sentence for sentence, taken in zip(sentences, steps.tolist(), strict=False) if taken}
