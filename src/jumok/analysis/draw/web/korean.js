/* What a map says in Korean: Jumok.korean(kind) is the `texts` of Jumok.attentionMap for a map of that kind. */
(function (root) {
  "use strict";

  const ALL = {
    words: "단어", tokens: "토큰", unit: "행과 열의 단위", layer: "층", head: "헤드", all: "전체 평균", gallery: "모든 층과 헤드",
    lookedAt: "→", with: "", lookedAtBy: "←", legend: "0부터 이 지도에서 가장 큰 값까지입니다.",
    letters: (some) => `이 브라우저의 글꼴에는 ${some} 글자가 없어 빈 네모로 보입니다. Noto 글꼴처럼 그 글자가 있는 글꼴을 설치해 주세요.`,
    thumb: (layer, head) => (head === null ? `층 ${layer}` : `층 ${layer}, 헤드 ${head}`),
    source: "원문", target: "번역문", copy: "SVG로 복사", copied: "복사했습니다", notCopied: "여기서는 복사할 수 없습니다",
  };
  const OWN = {
    line: {
      hint: "단어를 가리키거나 화살표 키를 써 보세요. 어디를 보았을까요?",
      entropy: (nats, count, tokens) => `엔트로피 ${nats}, 약 ${count}${tokens ? "토큰" : "단어"}에 나누어 봄`,
      matrix: "주목 행렬. 화살표 키로 칸을 옮기고 Esc로 나갑니다.", overview: "전체 지도. 누르면 그곳으로 갑니다.",
      legend: "0부터 이 지도에서 가장 큰 값까지. 단어 옆의 선은 눈길이 얼마나 퍼져 있는지 보여 줍니다.",
    },
    image: {
      legend: "어두우면 보지 않은 곳, 그림의 제 색이면 가장 많이 본 곳입니다.", eachLargest: "단어마다 가장 큰 값",
      cut: "가장 어두운 가장자리는 모델이 보기 전에 잘려 나간 부분입니다.",
      target: "설명", empty: "설명이 비어 있습니다.",
      hint: "단어나 그림을 가리키거나, 누르거나, 화살표 키를 써 보세요. 어디를 보았을까요?",
      entropy: (nats, regions) => `엔트로피 ${nats}, 약 ${regions}곳에 나누어 봄`,
      parts: [["왼쪽 위", "위쪽", "오른쪽 위"], ["왼쪽", "가운데", "오른쪽"], ["왼쪽 아래", "아래쪽", "오른쪽 아래"]],
      most: (part, share, regions, even) => `→ ${part} ${share} (영역 ${regions}개 가운데 하나, 고르게 보면 ${even})`,
    },
    graph: {
      hint: "노드, 간선, 표의 줄을 가리켜 보세요. 얼마나 보았을까요?",
      table: "이 노드가 본 노드들. 화살표 키로 줄을 옮깁니다.",
      columns: ["노드", "클래스", "가중치"], itself: "자신", wrong: "틀림", more: (count, share) => `외 ${count}개, 합하여 ${share}`,
      heads: "헤드가 더 적은 층에서는, 없는 헤드 자리에 평균을 보여 줍니다.",
      below: (layer) => `작은 것: 이 노드들이 층 ${layer}에서 본 것`, inLayer: (layer) => `(층 ${layer})`,
      entropy: (nats, nodes) => `엔트로피 ${nats}, 약 ${nodes}개 노드에 나누어 봄`,
    },
  };

  root.Jumok.korean = (kind) => ({ ...ALL, ...OWN[kind] });
})(window);
