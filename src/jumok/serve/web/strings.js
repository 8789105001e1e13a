/* What the page says, in English and Korean. */

const EN = {
  title: "jumok 주목: translate, and see where the model looked",
  skip: "Skip to the text", model: "Model", language: "Language of this page", theme: "Light or dark",
  translate: "Translate", source: "Text", target: "Translation", placeholder: "Type or paste a text…",
  clear: "Clear", copy: "Copy", copied: "Copied", examples: "Examples", try: "Try",
  look: "Where it looked", others: "Best translations", beam: "The search, step by step", width: "Beam",
  saveSvg: "Save SVG", saveHtml: "Save HTML", foot: "Everything on this page comes from your own server.",
  keyAsked: "This server asks for a key.", keyUse: "Use it",
  count: (now, most) => `${now.toLocaleString("en")} / ${most.toLocaleString("en")}`,
  long: (most) => `A line may have ${most.toLocaleString("en")} characters at most.`,
  parts: (count) => `Longer than the model reads at once: translated in ${count} parts.`,
  length: "A sentence is longer than any the model was trained on. Shorter ones may turn out better.",
  words: "Most of these words are unknown to the model. Expect a guess.",
  part: (now, of) => `Part ${now} of ${of}`, partsLabel: "Parts of the text", partBefore: "Part before", partAfter: "Part after",
  empty: "The translation appears here. Point at one of its words, and the words it looked at light up.",
  noAttention: "This model has no attention to show: its decoder sees the whole text as one vector.",
  noTree: "There is no one search of a text that was translated in parts. Choose a shorter line.",
  treeHint: "Each column is a step of the search; dashed hypotheses were given up. Point at one, or use the arrow keys.",
  treeNode: (text, chance) => [text || "(nothing yet)", `  ${chance} likely`],
  ended: (rank) => (rank === 0 ? "the translation" : rank === null ? "ended, not among the best" : `number ${rank + 1} in the end`),
  end: "end", loading: "Searching…", translation: (text) => `Translation: ${text}`,
  gone: "The server does not answer. The page keeps trying.",
  busy: "Many ask at once. The page tries again in a moment.", slow: "This took too long and was given up. Try a shorter text.",
  failed: (what) => `That did not work: ${what}`,
  domain: {
    cldr: "This small model can translate dates and times, durations, measures, amounts of money, and lists of countries or languages. It knows nothing else.",
    phrases: "This small model can translate dates and times, days and months, durations, measures, amounts of money, and names of countries and languages. It knows nothing else.",
    dates: "This small model writes dates the way ISO 8601 does. It knows nothing else.",
    reverse: "This small model writes digits backwards. It knows nothing else.",
  },
  map: {},
};

const KO = {
  title: "jumok 주목: 번역하고, 모델이 어디를 보았는지 보기",
  skip: "본문 입력으로 건너뛰기", model: "모델", language: "화면 언어", theme: "밝게 또는 어둡게",
  translate: "번역", source: "원문", target: "번역문", placeholder: "글을 입력하거나 붙여 넣으세요…",
  clear: "지우기", copy: "복사", copied: "복사했습니다", examples: "예문", try: "예문",
  look: "어디를 보았나", others: "번역 후보", beam: "탐색 과정", width: "빔 폭",
  saveSvg: "SVG 저장", saveHtml: "HTML 저장", foot: "이 화면의 모든 것은 여러분의 서버에서 옵니다.",
  keyAsked: "이 서버는 열쇠(API 키)가 필요합니다.", keyUse: "사용",
  count: (now, most) => `${now.toLocaleString("ko")} / ${most.toLocaleString("ko")}`,
  long: (most) => `한 줄은 ${most.toLocaleString("ko")}자까지 쓸 수 있습니다.`,
  parts: (count) => `모델이 한 번에 읽기에 길어서 ${count}부분으로 나누어 번역했습니다.`,
  length: "모델이 학습한 것보다 긴 문장이 있습니다. 문장을 짧게 나누면 더 잘 번역될 수 있습니다.",
  words: "대부분 모델이 모르는 단어입니다. 번역이 맞지 않을 수 있습니다.",
  part: (now, of) => `${of}부분 중 ${now}번째`, partsLabel: "글의 부분", partBefore: "앞부분", partAfter: "다음 부분",
  empty: "번역문이 여기에 나타납니다. 번역문의 단어를 가리키면, 그 단어가 본 원문의 단어들이 밝아집니다.",
  noAttention: "이 모델에는 보여 줄 주목이 없습니다. 디코더가 글 전체를 벡터 하나로만 봅니다.",
  noTree: "나누어 번역한 글은 탐색 하나로 보여 줄 수 없습니다. 더 짧은 줄을 고르세요.",
  treeHint: "한 열이 탐색 한 단계입니다. 점선은 버려진 후보입니다. 가리키거나 화살표 키를 쓰세요.",
  treeNode: (text, chance) => [text || "(아직 없음)", `  확률 ${chance}`],
  ended: (rank) => (rank === 0 ? "이것이 번역문" : rank === null ? "끝났지만 뽑히지 않음" : `최종 ${rank + 1}위`),
  end: "끝", loading: "찾는 중…", translation: (text) => `번역: ${text}`,
  gone: "서버가 대답하지 않습니다. 계속 다시 시도합니다.",
  busy: "요청이 몰렸습니다. 잠시 뒤 다시 시도합니다.", slow: "너무 오래 걸려 그만두었습니다. 더 짧은 글로 해 보세요.",
  failed: (what) => `잘되지 않았습니다: ${what}`,
  domain: {
    cldr: "이 작은 모델은 날짜와 시각, 기간, 길이나 무게 같은 단위, 금액, 나라와 언어의 이름을 늘어놓은 글만 번역할 줄 압니다.",
    phrases: "이 작은 모델은 날짜와 시각, 요일과 달, 기간, 길이나 무게 같은 단위, 금액, 나라와 언어의 이름만 번역할 줄 압니다.",
    dates: "이 작은 모델은 날짜를 ISO 8601 형식으로 쓸 줄만 압니다.",
    reverse: "이 작은 모델은 숫자를 거꾸로 쓸 줄만 압니다.",
  },
  map: window.Jumok.korean("line"),
};

const LANGUAGES = { en: EN, ko: KO };
let language = "en";

/** The text of a name, with its values filled in. */
export function say(name, ...values) {
  const found = LANGUAGES[language][name];
  return typeof found === "function" ? found(...values) : found;
}

/** The language chosen earlier, else the browser's. */
export function preferred() {
  let kept = null;
  try {
    kept = localStorage.getItem("jumok-language");
  } catch {
    kept = null;
  }
  return LANGUAGES[kept] ? kept : (navigator.languages || []).some((one) => one.startsWith("ko")) ? "ko" : "en";
}

/** Say everything in this language. */
export function speak(chosen) {
  language = chosen;
  document.documentElement.lang = chosen;
  document.title = say("title");
  for (const node of document.querySelectorAll("[data-say]")) node.textContent = say(node.dataset.say);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", say(node.dataset.label));
  for (const node of document.querySelectorAll("[data-empty]")) node.dataset.empty = say("empty");
  for (const node of document.querySelectorAll("[data-hint]")) node.placeholder = say(node.dataset.hint);
  for (const node of document.querySelectorAll("[data-lang]")) node.setAttribute("aria-pressed", node.dataset.lang === chosen);
}

/** The name of a language such as "ko", in the language of the page. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames([language], { type: "language" }).of(code.replace("_", "-"));
  } catch {
    return code;
  }
}
