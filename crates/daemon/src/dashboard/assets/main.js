// Runs the page: asks for a token if one is needed, follows the events of the origin, reads again what they report as changed,
// and shows when the origin is down.

import { byId, element, fill } from "./elements.js";
import { time } from "./numbers.js";
import { AccessError, ProblemError, follow, read, token } from "./origin.js";
import * as files from "./files.js";
import * as sections from "./sections.js";

/** Delay between an event and reading what it changed: the events of a burst cause one read. */
const GATHER_MS = 150;
/** Time between two attempts while the origin is down: the first one and the maximum. */
const AGAIN_MS_MIN = 500;
const AGAIN_MS_MAX = 5000;
/** Interval of reading the parts that no event reports. */
const LOOK_MS = 5000;
const LOOK_AT_CAST_MS = 1000;
const EVENTS_MAX = 100;
/** Timeout of counting what each image costs: the origin walks all recipes. */
const COUNT_MS_MAX = 600000;

/** The parts of the data and their paths; an origin may lack some of them. */
const PARTS = {
	store: "/api/v1/store",
	images: "/api/v1/images",
	growth: "/api/v1/growth",
	costs: "/api/v1/costs",
	nodes: "/api/v1/nodes",
	disks: "/api/v1/disks",
	casts: "/api/v1/casts",
	hoard: "/api/v1/hoard",
};
/** The parts that an event changes. */
const CHANGES = {
	version: ["store", "images", "growth", "costs", "hoard"],
	forget: ["store", "images", "growth", "costs", "hoard"],
	rename: ["images", "growth", "costs", "hoard"],
	"edit-lock": ["disks"],
	cast: ["casts"],
	hoard: ["hoard", "nodes"],
	upload: [],
};
/** The parts that each section needs. Without the first part the section cannot be shown. */
const MADE_OF = {
	catalog: ["images", "growth", "costs"],
	growth: ["growth"],
	nodes: ["nodes", "hoard"],
	disks: ["disks", "nodes"],
	casts: ["casts"],
	hoard: ["hoard"],
};

/** The last state of each part: its contents, or why it cannot be read; and both as text, for comparison. */
const known = new Map();
/** Parts that must be read again. */
const stale = new Set();
/** Paths that this origin supports. */
let paths = new Set();
/** Whether the token covers all images. */
let seesAll = false;
let lastId = "";
let gathering = 0;
let reading = false;
/** Whether the origin counts what each image costs, and why it did not. */
const counting = { now: false, why: "" };
/** The image whose versions are shown. */
let opened = "";
/** Aborts all requests under this token; null while there is no token. */
let following = null;

function status(kind, text) {
	const place = byId("status");
	if (place.textContent !== text) {
		place.textContent = text;
	}
	place.className = kind;
}

/** Stops all requests until there is another token. */
function askForToken(why) {
	token.forget();
	known.clear();
	stale.clear();
	closeVersions();
	fill(byId("events-list"));
	for (const id of Object.keys(MADE_OF)) {
		fill(bodyOf(id));
	}
	byId("store").textContent = "";
	byId("data").hidden = true;
	byId("sections").hidden = true;
	byId("leave").hidden = true;
	byId("access").hidden = false;
	byId("access-why").textContent = why;
	status("", "Waiting for an access token.");
	byId("token").focus();
}

function showData() {
	byId("access").hidden = true;
	byId("data").hidden = false;
	byId("sections").hidden = false;
	byId("leave").hidden = token.get() === "";
}

function bodyOf(id) {
	return byId(id).querySelector(".body");
}

/** Replaces the contents of an element. Keeps the focus, and opened details. */
function replace(place, contents) {
	const focused = place.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
	const open = [...place.querySelectorAll("details[open]")].map((it) => it.id);
	fill(place, ...contents);
	open.map(byId).forEach((it) => it?.setAttribute("open", ""));
	if (focused !== undefined) {
		[...place.querySelectorAll("[data-focus]")].find((it) => it.dataset.focus === focused)?.focus();
	}
}

function contentsOf(id) {
	const said = (part) => known.get(part)?.means ?? null;
	switch (id) {
		case "catalog":
			return [
				...sections.catalog(said("images"), said("growth"), said("costs"), byId("filter").value.trim(), openVersions),
				...sections.costs(said("costs"), counting, countCosts),
			];
		case "growth":
			return sections.growth(said("growth"), bodyOf("growth").clientWidth);
		case "nodes":
			return sections.nodes(said("nodes"), said("hoard"));
		case "disks":
			return sections.disks(said("disks") ?? [], said("nodes"));
		case "casts":
			return sections.casts(said("casts") ?? []);
		default:
			return sections.hoard(said("hoard"));
	}
}

/** Renders a section again. */
function show(id) {
	const why = known.get(MADE_OF[id][0])?.trouble;
	const lacks = MADE_OF[id].some((part) => !known.has(part));
	if (why !== undefined) {
		replace(bodyOf(id), [sections.trouble(why)]);
	} else if (!lacks) {
		replace(bodyOf(id), contentsOf(id));
	}
}

/** Requests a part; null if the origin does not have it. */
async function meaningOf(part) {
	if (!paths.has(PARTS[part])) {
		return null;
	}
	// Without a request, because the refused ones would appear as errors.
	return (part === "nodes" || part === "costs") && !seesAll ? { isHidden: true } : read(PARTS[part]);
}

/** Reads a part. Returns whether it has changed. */
async function readPart(part, asked) {
	let now;
	try {
		now = { means: await meaningOf(part) };
	} catch (error) {
		// An error of the token or the connection does not belong to this part.
		if (!(error instanceof ProblemError)) {
			throw error;
		}
		now = { trouble: error.message };
	}
	const text = JSON.stringify(now);
	if (asked !== following || known.get(part)?.text === text) {
		return false;
	}
	known.set(part, { ...now, text });
	return true;
}

/** Reads the stale parts, and renders the sections that have changed. */
async function refresh() {
	if (reading) {
		return;
	}
	reading = true;
	const asked = following;
	let parts = [];
	try {
		while (stale.size > 0 && asked !== null) {
			parts = [...stale];
			stale.clear();
			const news = await Promise.all(parts.map((part) => readPart(part, asked)));
			if (asked !== following) {
				break;
			}
			const changed = parts.filter((_, at) => news[at]);
			if (changed.includes("store")) {
				const { means, trouble } = known.get("store");
				byId("store").textContent = trouble ?? sections.store(means);
			}
			Object.keys(MADE_OF).filter((id) => MADE_OF[id].some((part) => changed.includes(part))).forEach(show);
			if (opened !== "" && (changed.includes("images") || changed.includes("disks"))) {
				await showVersions();
			}
			byId("data").dataset.reads = String(Number(byId("data").dataset.reads ?? 0) + 1);
		}
	} catch (error) {
		if (error instanceof AccessError && asked === following) {
			leave(`The origin does not know this token: ${error.message}.`);
		} else if (asked === following) {
			setTimeout(() => gather(parts), AGAIN_MS_MAX);
		}
	} finally {
		reading = false;
		if (stale.size > 0 && following !== null) {
			gather([]);
		}
	}
}

function gather(parts) {
	parts.forEach((part) => stale.add(part));
	clearTimeout(gathering);
	gathering = setTimeout(refresh, GATHER_MS);
}

function heard({ id, name, data }) {
	lastId = id;
	if (name === "listening" || name === "reset") {
		status("good", `Following this origin since ${time(Date.now())}.`);
		gather(Object.keys(PARTS));
	} else {
		gather(CHANGES[name] ?? []);
	}
	if (name !== "listening") {
		const list = byId("events-list");
		list.prepend(sections.event(name, data));
		while (list.children.length > EVENTS_MAX) {
			list.lastElementChild.remove();
		}
	}
	byId("events-none").hidden = byId("events-list").children.length > 0;
}

async function openVersions(image) {
	files.close();
	opened = image;
	await showVersions().catch(() => {});
	byId("versions-title")?.focus();
}

/** Lets the origin count what each image costs. */
async function countCosts() {
	const asked = following;
	Object.assign(counting, { now: true, why: "" });
	show("catalog");
	try {
		await read(`${PARTS.costs}?count=true`, COUNT_MS_MAX);
	} catch (error) {
		if (error instanceof AccessError && asked === following) {
			leave(`The origin does not know this token: ${error.message}.`);
		}
		counting.why = error.message;
	}
	counting.now = false;
	if (asked === following && asked !== null) {
		show("catalog");
		gather(["costs", "store"]);
	}
}

function closeVersions() {
	const image = opened;
	opened = "";
	files.close();
	byId("versions").hidden = true;
	fill(byId("versions"));
	const opener = [...document.querySelectorAll("[data-focus]")].find((it) => it.dataset.focus === `open ${image}`);
	opener?.focus();
}

async function showVersions() {
	const image = opened;
	const place = byId("versions");
	try {
		const all = await read(`/api/v1/versions?image=${encodeURIComponent(image)}`);
		if (image === opened) {
			replace(place, sections.versions(image, all, files.open, closeVersions));
		}
	} catch (error) {
		if (error instanceof AccessError) {
			throw error;
		}
		replace(place, [element("h3", { id: "versions-title", tabindex: "-1" }, `Versions of ${image}`), sections.trouble(error.message)]);
	}
	place.hidden = opened === "";
}

function leave(why) {
	following?.abort();
	following = null;
	askForToken(why);
}

function pause(ms) {
	return new Promise((resolve) => {
		setTimeout(resolve, ms);
	});
}

/** Follows the origin until it rejects the token. */
async function followOrigin() {
	following?.abort();
	const mine = new AbortController();
	following = mine;
	let again = AGAIN_MS_MIN;
	while (following === mine) {
		try {
			const description = await read("/api/v1/openapi.json");
			paths = new Set(Object.keys(description.paths));
			seesAll = (await read(PARTS.store)).blocks !== null;
			if (following !== mine) {
				return;
			}
			showData();
			await follow(lastId, mine.signal, (event) => {
				again = AGAIN_MS_MIN;
				if (following === mine) {
					heard(event);
				}
			});
		} catch (error) {
			if (error instanceof AccessError && following === mine) {
				leave(`The origin does not know this token: ${error.message}.`);
			}
		}
		if (following === mine) {
			status("bad", "The origin does not answer. The data may be outdated; this page retries by itself.");
			await pause(again);
			again = Math.min(again * 2, AGAIN_MS_MAX);
		}
	}
}

/** Marks the parts that no event reports as stale. */
function lookAround() {
	if (following !== null && document.visibilityState === "visible" && known.size > 0) {
		gather(["disks", "nodes", "casts"]);
	}
}

function lookAtCasts() {
	const casts = known.get("casts")?.means ?? [];
	if (following !== null && casts.some((it) => it.state === "waiting" || it.state === "casting")) {
		gather(["casts"]);
	}
}

async function start() {
	byId("access-form").addEventListener("submit", (event) => {
		event.preventDefault();
		token.set(byId("token").value.trim());
		byId("token").value = "";
		lastId = "";
		status("", "Connecting to the origin.");
		followOrigin();
	});
	byId("leave").addEventListener("click", () => leave("The access token was removed from this tab."));
	byId("filter").addEventListener("input", () => show("catalog"));
	let width = 0;
	new ResizeObserver(() => {
		const now = bodyOf("growth").clientWidth;
		if (now !== width && known.has("growth")) {
			width = now;
			show("growth");
		}
	}).observe(bodyOf("growth"));
	files.onAccessError((error) => leave(`The origin does not know this token: ${error.message}.`));
	setInterval(lookAround, LOOK_MS);
	setInterval(lookAtCasts, LOOK_AT_CAST_MS);
	for (let again = AGAIN_MS_MIN; ; again = Math.min(again * 2, AGAIN_MS_MAX)) {
		try {
			const access = await read("/dashboard/access.json");
			if (access.token && token.get() === "") {
				askForToken(byId("access-why").textContent);
			} else {
				followOrigin();
			}
			return;
		} catch {
			status("bad", "The origin does not answer. This page retries by itself.");
			await pause(again);
		}
	}
}

start();
