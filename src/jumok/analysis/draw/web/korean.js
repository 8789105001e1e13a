/* The Korean texts of a map: Jumok.korean(kind) returns the `texts` option of Jumok.attentionMap. */
(function (root) {
  "use strict";

  const ALL = {
    words: "단어", tokens: "토큰", unit: "행과 열의 단위", layer: "레이어", head: "헤드", all: "전체 평균", gallery: "모든 레이어와 헤드",
    probability: (share) => `확률 ${share}`,
    lookedAt: "→", with: "", lookedAtBy: "←", legend: "0부터 이 맵의 최댓값까지 나타냅니다.",
    letters: (some) => `이 브라우저의 글꼴에는 ${some} 글자가 없어 빈 네모로 보입니다. Noto 글꼴처럼 그 글자가 있는 글꼴을 설치해 주세요.`,
    thumb: (layer, head) => (head === null ? `레이어 ${layer}` : `레이어 ${layer}, 헤드 ${head}`),
    source: "원문", target: "번역문", attendedTo: "주목받는 단어", attends: "주목하는 단어", copy: "SVG로 복사", copied: "복사했습니다", notCopied: "여기서는 복사할 수 없습니다",
  };
  const OWN = {
    line: {
      hint: "단어에 마우스를 올리거나 화살표 키를 누르면 그 단어가 주목한 곳을 볼 수 있습니다.",
      entropy: (nats, count, tokens) => `엔트로피 ${nats} (${tokens ? "토큰" : "단어"} 약 ${count}개에 고르게 주목한 것과 같음)`,
      matrix: "어텐션 행렬. 화살표 키로 칸을 이동하고 Esc 키로 나갑니다.", overview: "전체 맵. 누르면 그 위치로 이동합니다.",
      legend: "0부터 이 맵의 최댓값까지 나타냅니다. 단어 옆의 선은 어텐션이 얼마나 분산되었는지 보여 줍니다.",
    },
    image: {
      legend: "어두운 곳은 주목하지 않은 곳, 원래 색으로 보이는 곳은 가장 많이 주목한 곳입니다.", eachLargest: "단어별 최댓값",
      cut: "가장 어두운 가장자리는 모델에 입력하기 전에 잘라 낸 부분입니다.",
      target: "캡션", empty: "캡션이 비어 있습니다.",
      hint: "단어나 이미지에 마우스를 올리거나 누르면, 또는 화살표 키를 누르면 주목한 곳을 볼 수 있습니다.",
      entropy: (nats, regions) => `엔트로피 ${nats} (영역 약 ${regions}개에 고르게 주목한 것과 같음)`,
      parts: [["왼쪽 위", "위쪽", "오른쪽 위"], ["왼쪽", "가운데", "오른쪽"], ["왼쪽 아래", "아래쪽", "오른쪽 아래"]],
      most: (part, share, regions, even) => `→ ${part} ${share} (영역 ${regions}개 중 하나, 고르게 주목하면 ${even})`,
    },
    graph: {
      hint: "노드, 간선, 표의 행에 마우스를 올리면 가중치를 볼 수 있습니다.",
      table: "이 노드가 주목한 노드. 화살표 키로 행을 이동합니다.",
      title: (name, label, predicted, share) => `노드 ${name}: 클래스 ${label}` + (predicted ? `, 예측 ${predicted} (${share})` : ""),
      columns: ["노드", "클래스", "가중치"], itself: "자신", wrong: "틀림", more: (count, share) => `외 ${count}개, 합계 ${share}`,
      heads: "헤드 수가 적은 레이어는 없는 헤드 대신 그 레이어의 평균을 보여 줍니다.",
      below: (layer) => `작은 노드: 이웃 노드들이 레이어 ${layer}에서 주목한 노드`, inLayer: (layer) => `(레이어 ${layer})`,
      entropy: (nats, nodes) => `엔트로피 ${nats} (노드 약 ${nodes}개에 고르게 주목한 것과 같음)`,
    },
  };

  root.Jumok.korean = (kind) => ({ ...ALL, ...OWN[kind] });
})(window);
