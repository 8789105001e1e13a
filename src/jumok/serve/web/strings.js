/* The texts of the page, in English and Korean. */

const percent = (share, language) => share.toLocaleString(language, { style: "percent", maximumSignificantDigits: 2 });

const EN = {
  title: "jumok 주목: see what the model attends to",
  skip: "Skip to the input", model: "Model", tag: "Tag", noTag: "no tag", from: "Language of the text", to: "Language of the translation", anyLanguage: "not selected", language: "Language of this page", theme: "Switch between light and dark mode",
  translate: "Translate", source: "Text", target: "Translation", placeholder: "Type or paste text…",
  describe: "Describe an image", image: "Image", caption: "Caption", drop: "Drop an image here", chooseFile: "Choose a file", chooseAnother: "Choose another",
  classify: "Classify a node", node: "Node", nodeHint: "Number or name of a node…", nodeClass: "Class", result: "Output", classes: "Probabilities of the classes", trueClass: "true class",
  share: (share) => percent(share, "en"), moreClasses: (count) => (count === 1 ? "1 more class" : `${count} more classes`), noNode: (node) => `The graph has no node “${node}”.`,
  clear: "Clear", copy: "Copy", copied: "Copied", examples: "Examples", try: "Try", exampleImage: (number) => `Example image ${number}`,
  look: "Where the model looked", others: "Best translations", captions: "Best captions", beam: "Beam search, step by step", width: "Beam size",
  kind: "Kind of attention", kinds: { cross: "to the source", encoder: "within the source", decoder: "within the output" },
  saveSvg: "Save SVG", saveHtml: "Save HTML", foot: "This page loads nothing from other servers.",
  keyAsked: "This server requires an API key.", keyUse: "Submit",
  count: (now, most) => `${now.toLocaleString("en")} / ${most.toLocaleString("en")}`,
  long: (most) => `A line may have at most ${most.toLocaleString("en")} characters.`,
  parts: (count) => `The text is too long for the model, so it was translated in ${count} parts.`,
  doubts: {
    length: "A sentence is longer than those in the training data. Shorter sentences may translate better.",
    words: "The model does not know many of these words. The translation is a guess.",
    tag: "The model does not know the tag in front of the text, so it translated the tag as text.",
    language: "The text names no target language, and the model has several. Choose one.",
    output: "The model wrote mostly unknown tokens (⁇), which its vocabulary cannot spell.",
    terms: "The vocabulary of the model cannot write a required term, so the translation was made without it.",
  },
  probability: (share) => `probability ${percent(share, "en")}`,
  choices: "Other words", insteadOf: (word) => `Instead of “${word}”:`, ownWord: "Your own word…", useWord: "Use", close: "Close", noOthers: "The model finds no other word.",
  pinnedText: (text) => `The translation begins with “${text}”.`, unpin: "Undo",
  glossary: "Glossary", termsHint: "One term per line: source = target", terms: (count) => (count === 1 ? "1 term" : `${count} terms`),
  part: (now, of) => `Part ${now} of ${of}`, partsLabel: "Parts of the text", partBefore: "Previous part", partAfter: "Next part",
  empty: "The translation appears here. Hover over one of its words to see which source words the model looked at, and click it to choose another word.",
  emptyCaption: "The caption appears here. Hover over one of its words, or tap it, to see where in the image the model looked.",
  emptyNode: "The class of the node appears here, and below it, which neighbours the node attended to.",
  emptyResult: "The output appears here, and below it, what the model looked at.",
  noAttention: "This model has no attention: its decoder sees the input as a single vector.",
  noTree: "This text was translated in parts, so there is no single beam search to show. Try a shorter line.",
  treeHint: "Each column is a step of the search; dashed hypotheses were dropped. Hover over a hypothesis, or use the arrow keys.",
  treeNode: (text, chance) => [text || "(empty)", `  probability ${chance}`],
  ended: (rank) => (rank === 0 ? "the translation" : rank === null ? "complete, but not among the best" : `rank ${rank + 1} in the final list`),
  end: "end", loading: "Searching…", translation: (text) => `Translation: ${text}`, captioned: (text) => `Caption: ${text}`,
  classified: (text) => `Class: ${text}`, answered: (text) => `Output: ${text}`,
  gone: "The server does not respond. Trying again…",
  busy: "The server is busy. Trying again in a moment…", slow: "This took too long. Try a smaller input.",
  failed: (what) => `Something went wrong: ${what}`, unreadable: "the browser cannot read this image; choose a smaller one",
  domain: {
    cldr: "This small model only translates dates and times, durations, measures, amounts of money, and lists of countries or languages.",
    phrases: "This small model only translates dates and times, days and months, durations, measures, amounts of money, and names of countries and languages.",
    dates: "This small model only converts dates to ISO 8601 format.",
    reverse: "This small model only reverses digits.",
    scenes: "This small model only describes pictures of a few coloured shapes.",
  },
  map: () => ({}),
};

const KO = {
  title: "jumok 주목: 모델이 무엇에 주목하는지 보기",
  skip: "입력으로 건너뛰기", model: "모델", tag: "태그", noTag: "태그 없음", from: "원문의 언어", to: "번역문의 언어", anyLanguage: "선택 안 함", language: "화면 언어", theme: "밝은 화면과 어두운 화면 전환",
  translate: "번역", source: "원문", target: "번역문", placeholder: "글을 입력하거나 붙여 넣으세요…",
  describe: "이미지 캡션", image: "이미지", caption: "캡션", drop: "여기에 이미지를 끌어다 놓으세요", chooseFile: "파일 선택", chooseAnother: "다른 이미지 선택",
  classify: "노드 분류", node: "노드", nodeHint: "노드의 번호나 이름…", nodeClass: "클래스", result: "결과", classes: "클래스별 확률", trueClass: "실제 클래스",
  share: (share) => percent(share, "ko"), moreClasses: (count) => `외 ${count}개 클래스`, noNode: (node) => `그래프에 ‘${node}’ 노드가 없습니다.`,
  clear: "지우기", copy: "복사", copied: "복사했습니다", examples: "예시", try: "예시", exampleImage: (number) => `예시 이미지 ${number}`,
  look: "모델이 본 곳", others: "번역 후보", captions: "캡션 후보", beam: "빔 서치 과정", width: "빔 크기",
  kind: "어텐션의 종류", kinds: { cross: "원문에 주목", encoder: "원문 내부", decoder: "번역문 내부" },
  saveSvg: "SVG 저장", saveHtml: "HTML 저장", foot: "이 페이지는 외부 서버에서 아무것도 불러오지 않습니다.",
  keyAsked: "이 서버를 쓰려면 API 키가 필요합니다.", keyUse: "확인",
  count: (now, most) => `${now.toLocaleString("ko")} / ${most.toLocaleString("ko")}`,
  long: (most) => `한 줄은 ${most.toLocaleString("ko")}자까지 쓸 수 있습니다.`,
  parts: (count) => `글이 너무 길어 ${count}개 부분으로 나누어 번역했습니다.`,
  doubts: {
    length: "학습 데이터보다 긴 문장이 있습니다. 문장을 짧게 나누면 더 잘 번역될 수 있습니다.",
    words: "모델이 모르는 단어가 많아 번역이 틀릴 수 있습니다.",
    tag: "모델이 모르는 태그라서 일반 텍스트로 번역했습니다.",
    language: "번역할 언어가 지정되지 않았습니다. 모델이 지원하는 언어 중 하나를 선택하세요.",
    output: "출력이 대부분 알 수 없는 토큰(⁇)입니다. 모델의 어휘로는 쓸 수 없는 글자입니다.",
    terms: "모델의 어휘로 쓸 수 없는 필수 용어가 있어 그 용어 없이 번역했습니다.",
  },
  probability: (share) => `확률 ${percent(share, "ko")}`,
  choices: "다른 단어", insteadOf: (word) => `‘${word}’ 대신 쓸 단어`, ownWord: "직접 입력…", useWord: "적용", close: "닫기", noOthers: "모델이 찾은 다른 단어가 없습니다.",
  pinnedText: (text) => `번역문의 앞부분을 고정했습니다: ${text}`, unpin: "고정 해제",
  glossary: "용어집", termsHint: "한 줄에 용어 하나: 원문 용어 = 번역 용어", terms: (count) => `용어 ${count}개`,
  part: (now, of) => `${of}개 중 ${now}번째 부분`, partsLabel: "글의 부분", partBefore: "이전 부분", partAfter: "다음 부분",
  empty: "번역문이 여기에 나타납니다. 단어에 마우스를 올리면 모델이 주목한 원문 단어가 강조되고, 단어를 누르면 다른 단어로 바꿀 수 있습니다.",
  emptyCaption: "캡션이 여기에 나타납니다. 단어에 마우스를 올리거나 단어를 누르면, 모델이 이미지에서 주목한 곳이 밝아집니다.",
  emptyNode: "노드의 클래스가 여기에 나타나고, 노드가 주목한 이웃이 그 아래에 나타납니다.",
  emptyResult: "결과가 여기에 나타나고, 모델이 주목한 곳이 그 아래에 나타납니다.",
  noAttention: "이 모델에는 어텐션이 없습니다. 디코더는 입력 전체를 벡터 하나로 받습니다.",
  noTree: "여러 부분으로 나누어 번역한 글은 빔 서치 과정을 보여 줄 수 없습니다. 더 짧은 글을 입력해 보세요.",
  treeHint: "한 열이 한 단계이고, 점선은 버려진 후보입니다. 후보에 마우스를 올리거나 화살표 키를 사용하세요.",
  treeNode: (text, chance) => [text || "(아직 없음)", `  확률 ${chance}`],
  ended: (rank) => (rank === 0 ? "최종 번역문" : rank === null ? "완성되었지만 후보에 들지 못함" : `최종 ${rank + 1}위`),
  end: "끝", loading: "찾는 중…", translation: (text) => `번역: ${text}`, captioned: (text) => `캡션: ${text}`,
  classified: (text) => `클래스: ${text}`, answered: (text) => `결과: ${text}`,
  gone: "서버가 응답하지 않습니다. 다시 연결하는 중입니다…",
  busy: "서버가 바쁩니다. 잠시 뒤 다시 시도합니다.", slow: "너무 오래 걸려 중단했습니다. 입력을 줄여 다시 시도해 보세요.",
  failed: (what) => `문제가 생겼습니다: ${what}`, unreadable: "브라우저가 이 이미지를 읽지 못합니다. 더 작은 이미지를 선택해 주세요",
  domain: {
    cldr: "이 작은 모델은 날짜와 시각, 기간, 길이나 무게 같은 단위, 금액, 나라와 언어 이름의 목록만 번역할 수 있습니다.",
    phrases: "이 작은 모델은 날짜와 시각, 요일과 달, 기간, 길이나 무게 같은 단위, 금액, 나라와 언어의 이름만 번역할 수 있습니다.",
    dates: "이 작은 모델은 날짜를 ISO 8601 형식으로 바꾸기만 합니다.",
    reverse: "이 작은 모델은 숫자의 순서를 뒤집기만 합니다.",
    scenes: "이 작은 모델은 색깔 도형 몇 개를 그린 이미지만 설명할 수 있습니다.",
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
