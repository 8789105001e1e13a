/* The server's REST interface, and its refusals as errors with a kind. */

export class Problem extends Error {
  constructor(kind, message, wait = 1) {
    super(message);
    this.kind = kind; // gone, busy, slow, key, invalid or wrong
    this.wait = wait; // seconds until it is worth trying again
  }
}

const KINDS = { 401: "key", 422: "invalid", 503: "busy", 504: "slow" };
let key = "";

export function useKey(given) {
  key = given;
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { ...options.headers, ...(key ? { "X-API-Key": key } : {}) } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("gone", String(error.message || error), 2);
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Problem(KINDS[answer.status] || "wrong", problem.error || `HTTP ${answer.status}`, Number(answer.headers.get("Retry-After")) || 1);
}

const post = (path, body, signal) =>
  ask(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });

export const models = async () => (await ask("/api/models", {})).json();
export const translate = async (body, signal) => (await post("/api/translate", body, signal)).json();
export const attention = async (body, signal) => (await post("/api/attention", body, signal)).json();
export const caption = async (body, signal) => (await post("/api/caption", body, signal)).json();
export const alternatives = async (body, signal) => (await post("/api/alternatives", body, signal)).json();
export const beam = async (body, signal) => (await post("/api/beam", body, signal)).json();
export const page = async (body) => (await post("/api/page", body)).text();

/** Translate one text; `partial` is called with the best output so far. Gives the translation back. */
export async function stream(body, partial, signal) {
  const answer = await post("/api/stream", body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Problem("gone", "the answer broke off", 2);
      const events = (waiting + value).split("\n\n");
      waiting = events.pop();
      for (const event of events) {
        const parts = /^event: (\w+)\ndata: (.*)$/s.exec(event);
        const data = JSON.parse(parts[2]);
        if (parts[1] === "partial") partial(data.text);
        else if (parts[1] === "done") return data;
        else throw new Problem(KINDS[data.status] || "wrong", data.error);
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Problem) throw error;
    throw new Problem("gone", String(error.message || error), 2);
  }
}
