// The files of a version: its partitions, their directories, and downloads. Names are bytes that a stranger chose: they are
// shown as text, each with its own direction, and sent back as hexadecimal digits.

import { byId, element, fill, moment, number, size, table } from "./elements.js";
import { bytes, count } from "./numbers.js";
import { AccessError, contents, read } from "./origin.js";

const KINDS = {
	file: "file",
	directory: "directory",
	link: "link",
	character_device: "character device",
	block_device: "block device",
	fifo: "pipe",
	socket: "socket",
};
/** Until the browser has taken a download over. */
const TAKEN_MS = 60000;

/** What is shown. Replaced by every step, so a late reply is recognized. */
let shown = null;
let refused = () => {};

/** Sets what is called when the origin no longer knows the token. */
export function onAccessError(call) {
	refused = call;
}

/** Shows the partitions of a version. */
export function open(version) {
	go({ version, read: `/api/v1/partitions?version=${encodeURIComponent(version)}`, render: partitions });
}

/** Hides the files. */
export function close() {
	const version = shown?.version;
	shown = null;
	byId("files").hidden = true;
	byId("download").textContent = "";
	fill(body());
	[...document.querySelectorAll("[data-focus]")].find((it) => it.dataset.focus === `open ${version}`)?.focus();
}

function body() {
	return byId("files").querySelector(".body");
}

/** Reads a step, and shows it. */
async function go(step) {
	shown = step;
	const attempt = await attempted(() => read(step.read));
	if (shown !== step || attempt === null) {
		return;
	}
	const inside = attempt.trouble === undefined ? step.render(step, attempt.means) : [element("p", { class: "bad" }, attempt.trouble)];
	const title = element("h3", { id: "files-title", tabindex: "-1" }, `Files of ${step.version}`);
	fill(body(), title, ...(step.partition === undefined ? [] : [trail(step)]), ...inside, button("Close", close));
	byId("files").hidden = false;
	title.focus();
}

/** What a request means, or why it failed; null if the token is no longer known. */
async function attempted(request) {
	try {
		return { means: await request() };
	} catch (error) {
		if (error instanceof AccessError) {
			refused(error);
			return null;
		}
		return { trouble: error.message };
	}
}

function button(text, call, kind = "") {
	const made = element("button", { type: "button", class: kind }, element("bdi", {}, text));
	made.addEventListener("click", call);
	return made;
}

function partitions(step, all) {
	const name = (it) => it.volume ?? String(it.number ?? "disk");
	const columns = [
		{ title: "Partition", cell: (it) => (it.is_readable ? button(name(it), () => enter(step.version, name(it), []), "name") : name(it)) },
		{ title: "Offset", kind: "number", cell: (it) => size(it.offset) },
		{ title: "Size", kind: "number", cell: (it) => size(it.length) },
		{ title: "Contents", cell: (it) => it.filesystem || "unknown" },
		{ title: "Label", cell: (it) => element("bdi", {}, it.label ?? "") },
		{ title: "State", cell: (it) => it.damage ?? it.unreadable ?? "" },
	];
	return [table("partitions-table", `Partitions of ${step.version}`, columns, all)];
}

/** The parameters that name a file: `path` has its parts, as text and as hexadecimal digits. */
function place({ version, partition, path }) {
	const digits = path.map((part) => `2f${part.digits}`).join("") || "2f";
	return new URLSearchParams({ version, partition, path_bytes: digits });
}

/** Shows the directory at a path, from a name on; `before` has where the parts before it begin. */
function enter(version, partition, path, from = 0, before = []) {
	const step = { version, partition, path, from, before, render: directory };
	const asked = place(step);
	asked.set("from", from);
	go({ ...step, read: `/api/v1/files?${asked}` });
}

/** The directories from the root to the present one. */
function trail({ version, partition, path }) {
	const root = element("li", {}, button(`${partition}:/`, () => enter(version, partition, []), "name"));
	const parts = path.map((part, at) => element("li", {}, button(part.text, () => enter(version, partition, path.slice(0, at + 1)), "name")));
	return element("nav", { "aria-label": "Path" }, element("ol", { class: "trail" }, root, ...parts));
}

/** A part of a path. */
function part(entry) {
	const digits = entry.name_bytes ?? [...new TextEncoder().encode(entry.name)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
	return { text: entry.name, digits };
}

function directory(step, page) {
	const { version, partition, path, from, before } = step;
	if (!page.is_directory) {
		// A link led to it.
		return [element("p", {}, "This is no directory."), button("Download", () => download(step, page.entries[0]))];
	}
	const below = (entry) => ({ version, partition, path: [...path, part(entry)] });
	const opener = (entry) => {
		switch (entry.kind) {
			case "directory":
			case "link":
				return button(entry.name, () => enter(version, partition, below(entry).path), "name");
			case "file":
				return button(entry.name, () => download(below(entry), entry), "name");
			default:
				return element("bdi", {}, entry.name);
		}
	};
	const kind = (entry) => (entry.kind === "link" ? element("span", {}, "link to ", element("bdi", {}, entry.target ?? "")) : KINDS[entry.kind]);
	const columns = [
		{ title: "Name", cell: opener },
		{ title: "Type", cell: kind },
		{ title: "Size", kind: "number", cell: (entry) => (entry.kind === "file" ? size(entry.size) : "") },
		{ title: "Mode", kind: "number", cell: (entry) => number(entry.mode, entry.mode.toString(8).padStart(4, "0")) },
		{ title: "Owner", kind: "short", cell: (entry) => `${entry.uid}:${entry.gid}` },
		{ title: "Changed", cell: (entry) => moment(entry.mtime * 1000) },
	];
	const end = page.next ?? page.total;
	const range = before.length > 0 || page.next !== null ? `Names ${(from + 1).toLocaleString("en")} to ${end.toLocaleString("en")} of ` : "";
	const back = before.length > 0 ? [button("Previous names", () => enter(version, partition, path, before.at(-1), before.slice(0, -1)))] : [];
	const on = page.next === null ? [] : [button("Next names", () => enter(version, partition, path, page.next, [...before, from]))];
	return [
		...page.faults.map((fault) => element("p", { class: "bad" }, fault)),
		table("files-table", `${range}${count(page.total, "name")}. A file is downloaded`, columns, page.entries),
		element("p", {}, ...back, ...on),
	];
}

/** Lets the browser save a file. Its contents are in the browser's memory or temporary files until they are complete. */
/** A name for a file on the user's machine: without separators, and without characters that hide or turn around what follows. */
function harmless(name) {
	return name.replace(/[\p{C}\\/:*?"<>|]/gu, "_");
}

async function download(where, entry) {
	const told = byId("download");
	told.className = "";
	told.textContent = `Downloading ${entry.name}, ${bytes(entry.size)}.`;
	const attempt = await attempted(() => contents(`/api/v1/files/contents?${place(where)}`));
	if (attempt === null) {
		return;
	}
	if (attempt.trouble !== undefined) {
		told.className = "bad";
		told.textContent = `${entry.name} was not downloaded: ${attempt.trouble}`;
		return;
	}
	const url = URL.createObjectURL(attempt.means);
	element("a", { href: url, download: harmless(where.path.at(-1).text) }).click();
	setTimeout(() => URL.revokeObjectURL(url), TAKEN_MS);
	told.textContent = `Downloaded ${entry.name}, ${bytes(attempt.means.size)}.`;
}
