// Requests to the origin: single requests, and the stream of events.

/** Timeout of a request. */
const ANSWER_MS_MAX = 30000;
/** Timeout of the event stream; the origin sends something at least every 15 seconds. */
const SILENCE_MS_MAX = 40000;
/** Maximum length of an event in characters; a longer one is an error. */
const EVENT_LENGTH_MAX = 1 << 20;
const STORED = "platter-access-token";

/** The origin rejects the access token. */
export class AccessError extends Error {}

/** The origin replied with an error. */
export class ProblemError extends Error {}

/** The access token, kept for this tab only. */
export const token = {
	get() {
		return sessionStorage.getItem(STORED) ?? "";
	},
	set(text) {
		sessionStorage.setItem(STORED, text);
	},
	forget() {
		sessionStorage.removeItem(STORED);
	},
};

function ask(path, headers, signal) {
	const secret = token.get();
	const shown = secret === "" ? headers : { ...headers, authorization: `Bearer ${secret}` };
	// No cookies, no cache, and no redirects.
	return fetch(path, { headers: shown, signal, cache: "no-store", credentials: "omit", redirect: "error" });
}

async function checked(response) {
	if (response.ok) {
		return response;
	}
	const problem = await response.json().catch(() => ({}));
	const detail = typeof problem.detail === "string" ? problem.detail : `status ${response.status}`;
	if (response.status === 401) {
		throw new AccessError(detail);
	}
	throw new ProblemError(detail);
}

/** Requests a path. Returns the JSON reply. */
export async function read(path, answerMsMax = ANSWER_MS_MAX) {
	const response = await ask(path, {}, AbortSignal.timeout(answerMsMax));
	return (await checked(response)).json();
}

/** Requests the contents of a file. Returns them as a blob, which the browser may keep on its disk. */
export async function contents(path) {
	return (await checked(await ask(path, {}))).blob();
}

/** Calls `heard` with every event after the one with this id, until the stream ends or times out, or `end` aborts it. */
export async function follow(lastId, end, heard) {
	const silence = new AbortController();
	let timer = setTimeout(() => silence.abort(), SILENCE_MS_MAX);
	try {
		const headers = lastId === "" ? {} : { "last-event-id": lastId };
		const response = await checked(await ask("/api/v1/events", headers, AbortSignal.any([silence.signal, end])));
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		for (;;) {
			const { value, done } = await reader.read();
			if (done || rest.length > EVENT_LENGTH_MAX) {
				return;
			}
			clearTimeout(timer);
			timer = setTimeout(() => silence.abort(), SILENCE_MS_MAX);
			const parts = (rest + value).split("\n\n");
			rest = parts.pop();
			parts.map(eventOf).filter(Boolean).forEach(heard);
		}
	} finally {
		clearTimeout(timer);
		silence.abort();
	}
}

/** Parses the lines of an event; null for a comment. */
function eventOf(text) {
	const event = { id: "", name: "", data: {} };
	for (const line of text.split("\n")) {
		const [field, ...value] = line.split(": ");
		const contents = value.join(": ");
		if (field === "id") {
			event.id = contents;
		} else if (field === "event") {
			event.name = contents;
		} else if (field === "data") {
			event.data = JSON.parse(contents);
		}
	}
	return event.name === "" ? null : event;
}
