/* The texts of the page, in English and Korean. */

const EN = {
  title: "jumok 주목: see what the model attends to",
  skip: "Skip to the input", model: "Model", tag: "Tag", noTag: "no tag", language: "Language of this page", theme: "Light or dark",
  translate: "Translate", source: "Text", target: "Translation", placeholder: "Type or paste text…",
  describe: "Describe an image", image: "Image", caption: "Caption", drop: "Drop an image here", chooseFile: "Choose a file", chooseAnother: "Choose another",
  clear: "Clear", copy: "Copy", copied: "Copied", examples: "Examples", try: "Try", exampleImage: (number) => `Example image ${number}`,
  look: "Where the model looked", others: "Best translations", captions: "Best captions", beam: "The search, step by step", width: "Beam",
  kind: "Kind of attention", kinds: { cross: "to the source", encoder: "within the source", decoder: "within the output" },
  saveSvg: "Save SVG", saveHtml: "Save HTML", foot: "Everything on this page comes from your own server.",
  keyAsked: "This server requires an API key.", keyUse: "Use it",
  count: (now, most) => `${now.toLocaleString("en")} / ${most.toLocaleString("en")}`,
  long: (most) => `A line may have at most ${most.toLocaleString("en")} characters.`,
  parts: (count) => `The text is too long for the model and was translated in ${count} parts.`,
  length: "A sentence is longer than those the model was trained on. Shorter sentences may translate better.",
  words: "The model does not know most of these words. The translation is a guess.",
  part: (now, of) => `Part ${now} of ${of}`, partsLabel: "Parts of the text", partBefore: "Previous part", partAfter: "Next part",
  empty: "The translation appears here. Hover over one of its words, or tap it, to see which source words the model looked at.",
  emptyCaption: "The caption appears here. Hover over one of its words, or tap it, to see where in the image the model looked.",
  noAttention: "This model has no attention to show: its decoder sees the whole input as one vector.",
  noTree: "A text that was translated in parts has no single search. Choose a shorter line.",
  treeHint: "Each column is a step of the search; dashed hypotheses were dropped. Point at one, or use the arrow keys.",
  treeNode: (text, chance) => [text || "(nothing yet)", `  probability ${chance}`],
  ended: (rank) => (rank === 0 ? "the translation" : rank === null ? "complete, but not among the best" : `number ${rank + 1} in the end`),
  end: "end", loading: "Searching…", translation: (text) => `Translation: ${text}`, captioned: (text) => `Caption: ${text}`,
  gone: "The server does not answer. The page keeps trying.",
  busy: "The server is busy. The page tries again in a moment.", slow: "This took too long. Try less at once.",
  failed: (what) => `That did not work: ${what}`, unreadable: "the browser cannot read this image; choose a smaller one",
  domain: {
    cldr: "This small model translates dates and times, durations, measures, amounts of money, and lists of countries or languages, and nothing else.",
    phrases: "This small model translates dates and times, days and months, durations, measures, amounts of money, and names of countries and languages, and nothing else.",
    dates: "This small model writes dates in ISO 8601 format, and nothing else.",
    reverse: "This small model writes digits backwards, and nothing else.",
    scenes: "This small model describes pictures of a few coloured shapes, and nothing else.",
  },
  map: () => ({}),
};

const KO = {
  title: "jumok 주목: 모델이 어디를 보는지 보기",
  skip: "입력으로 건너뛰기", model: "모델", tag: "태그", noTag: "태그 없음", language: "화면 언어", theme: "밝게 또는 어둡게",
  translate: "번역", source: "원문", target: "번역문", placeholder: "글을 입력하거나 붙여 넣으세요…",
  describe: "이미지 캡션", image: "이미지", caption: "캡션", drop: "여기에 이미지를 끌어다 놓으세요", chooseFile: "파일 고르기", chooseAnother: "다른 이미지 고르기",
  clear: "지우기", copy: "복사", copied: "복사했습니다", examples: "예시", try: "예시", exampleImage: (number) => `예시 이미지 ${number}`,
  look: "모델이 본 곳", others: "번역 후보", captions: "캡션 후보", beam: "탐색 과정", width: "빔 크기",
  kind: "어텐션의 종류", kinds: { cross: "원문을 볼 때", encoder: "원문 안에서", decoder: "번역문 안에서" },
  saveSvg: "SVG 저장", saveHtml: "HTML 저장", foot: "이 화면의 모든 내용은 여러분의 서버에서 옵니다.",
  keyAsked: "이 서버를 쓰려면 API 키가 필요합니다.", keyUse: "사용",
  count: (now, most) => `${now.toLocaleString("ko")} / ${most.toLocaleString("ko")}`,
  long: (most) => `한 줄은 ${most.toLocaleString("ko")}자까지 쓸 수 있습니다.`,
  parts: (count) => `글이 모델에는 너무 길어서 ${count}부분으로 나누어 번역했습니다.`,
  length: "모델이 학습한 것보다 긴 문장이 있습니다. 문장을 짧게 나누면 더 잘 번역될 수 있습니다.",
  words: "대부분 모델이 모르는 단어입니다. 번역이 맞지 않을 수 있습니다.",
  part: (now, of) => `${of}부분 중 ${now}번째`, partsLabel: "글의 부분", partBefore: "이전 부분", partAfter: "다음 부분",
  empty: "번역문이 여기에 나타납니다. 번역문의 단어를 가리키거나 누르면, 모델이 본 원문의 단어가 밝아집니다.",
  emptyCaption: "캡션이 여기에 나타납니다. 캡션의 단어를 가리키거나 누르면, 모델이 이미지에서 본 곳이 밝아집니다.",
  noAttention: "이 모델에는 보여 줄 어텐션이 없습니다. 디코더가 입력 전체를 벡터 하나로만 봅니다.",
  noTree: "나누어 번역한 글은 탐색 과정을 하나로 보여 줄 수 없습니다. 더 짧은 줄을 고르세요.",
  treeHint: "한 열이 탐색 한 단계이고, 점선은 버려진 후보입니다. 후보를 가리키거나 화살표 키를 쓰세요.",
  treeNode: (text, chance) => [text || "(아직 없음)", `  확률 ${chance}`],
  ended: (rank) => (rank === 0 ? "최종 번역문" : rank === null ? "완성되었지만 뽑히지 않음" : `최종 ${rank + 1}위`),
  end: "끝", loading: "찾는 중…", translation: (text) => `번역: ${text}`, captioned: (text) => `캡션: ${text}`,
  gone: "서버가 응답하지 않습니다. 계속 다시 시도합니다.",
  busy: "서버가 바쁩니다. 잠시 뒤 다시 시도합니다.", slow: "너무 오래 걸려 그만두었습니다. 한 번에 더 적게 보내 보세요.",
  failed: (what) => `잘되지 않았습니다: ${what}`, unreadable: "브라우저가 이 이미지를 읽지 못합니다. 더 작은 이미지를 골라 주세요",
  domain: {
    cldr: "이 작은 모델은 날짜와 시각, 기간, 길이나 무게 같은 단위, 금액, 나라와 언어의 이름을 늘어놓은 글만 번역할 줄 압니다.",
    phrases: "이 작은 모델은 날짜와 시각, 요일과 달, 기간, 길이나 무게 같은 단위, 금액, 나라와 언어의 이름만 번역할 줄 압니다.",
    dates: "이 작은 모델은 날짜를 ISO 8601 형식으로 쓸 줄만 압니다.",
    reverse: "이 작은 모델은 숫자를 거꾸로 쓸 줄만 압니다.",
    scenes: "이 작은 모델은 색깔 도형 몇 개를 그린 이미지의 캡션만 쓸 줄 압니다.",
  },
  map: (kind) => window.Jumok.korean(kind),
};

const LANGUAGES = { en: EN, ko: KO };
let language = "en";

/** The text of a name, with its values filled in. */
export function say(name, ...values) {
  const text = LANGUAGES[language][name];
  return typeof text === "function" ? text(...values) : text;
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

/** Show all texts in this language. */
export function speak(chosen) {
  language = chosen;
  document.documentElement.lang = chosen;
  document.title = say("title");
  for (const node of document.querySelectorAll("[data-say]")) node.textContent = say(node.dataset.say);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", say(node.dataset.label));
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
