// One function per section: takes the data of the origin, returns the contents of the section.

import { element, moment, number, progress, share, size, table } from "./elements.js";
import { bytes, count, rate, seconds } from "./numbers.js";
import { growth as plot, legend } from "./plot.js";

function say(text) {
	return element("p", { class: "quiet" }, text);
}

/** A section that cannot be shown, with the reason. */
export function trouble(why) {
	return element("p", { class: "bad" }, `This section is not available: ${why}`);
}

/** The line below the title. */
export function store(facts) {
	const blocks = facts.blocks === null ? "" : `, ${count(facts.blocks, "block")}`;
	const sums = `${count(facts.images, "image")}, ${count(facts.versions, "version")}, ${bytes(facts.stored_bytes)} stored${blocks}`;
	const waiting = facts.collection_needs_confirmation
		? "Garbage is not collected: more than 30 % would be given up, which `platter gc` asks to confirm. "
		: "";
	return `${sums}. ${waiting}${health(facts.health)}Store ${facts.id}, Platter ${facts.version}.`;
}

/** What reads of the packs have shown. */
function health(it) {
	if (!it || it.packs.packs === 0) {
		return "";
	}
	const trash = it.trash.bytes > 0 ? `Trash: ${bytes(it.trash.bytes)}. ` : "";
	const lost = it.quarantined_blocks > 0 ? `DAMAGED: ${count(it.quarantined_blocks, "block")} in quarantine. ` : "";
	const day = (time) => new Date(time).toISOString().slice(0, 10);
	const read = it.all_read_since_unix_ms === null
		? `Never read back: ${bytes(it.never_read_back.bytes)} of ${bytes(it.packs.bytes)}. `
		: `All read back since ${day(it.all_read_since_unix_ms)}. `;
	return `${lost}${trash}${read}`;
}

/** The part of a version that was already in the store, or is zeros. */
function shared(version) {
	return version.allocated_bytes > 0 ? Math.max(1 - version.new_raw_bytes / version.allocated_bytes, 0) : 1;
}

const SIZES = [
	{ title: "Disk", kind: "number", cell: (it) => size(it.disk_length) },
	{ title: "In use", kind: "number", cell: (it) => size(it.allocated_bytes) },
	{ title: "Added", kind: "number", cell: (it) => size(it.new_stored_bytes) },
	{ title: "Shared", kind: "short", cell: (it) => share(shared(it)) },
	{ title: "Published", cell: (it) => moment(it.time_unix_ms) },
];

/** The newest version of every image. `open` is called with the name of the image whose versions are to be shown. */
export function catalog(images, growth, costsFacts, wanted, open) {
	const only = new Map((costsFacts?.costs?.images ?? []).map((it) => [it.image, it.exclusive_bytes]));
	const sums = new Map((growth?.images ?? []).map((it) => [it.image, it]));
	const shown = images.filter((it) => it.image.includes(wanted));
	if (images.length === 0) {
		return [say("There are no images yet, or none that this token can read. `platter capture` creates one.")];
	}
	if (shown.length === 0) {
		return [say("No image name matches.")];
	}
	const columns = [
		{ title: "Image", cell: (it) => opener(it.image, open) },
		{ title: "Version", kind: "number", cell: (it) => number(it.number) },
		{ title: "Versions", kind: "number", cell: (it) => number(sums.get(it.image)?.versions ?? "") },
		...SIZES,
		...(only.size > 0 ? [{ title: "Only here", kind: "number", cell: (it) => sizeIfKnown(only.get(it.image)) }] : []),
		{ title: "Note", cell: (it) => it.notes },
	];
	return [table("catalog-table", "Images with their newest versions", columns, shown)];
}

/** When it was counted what each image costs, and a button that calls `count`. Nothing for tokens that do not see it. */
export function costs(facts, counting, count) {
	if (facts === null || facts.isHidden) {
		return [];
	}
	const known = facts.costs;
	const isCurrent = known?.change === facts.last_change;
	const estimate = known?.one_of > 1 ? ` Estimated from one of ${known.one_of} blocks.` : "";
	const said = known
		? `Only here: what forgetting an image would free, as of change ${known.change}${isCurrent ? "" : ", before later changes"}. ` +
			`In several images: ${bytes(known.shared_bytes)}. Trash: ${bytes(known.trash.bytes)}.${estimate}`
		: "What forgetting each image would free was not counted since the origin started.";
	const button = element("button", { type: "button", "data-focus": "count costs" }, known ? "Count again" : "Count it");
	button.addEventListener("click", count);
	return [
		element("p", { id: "costs", class: "quiet" }, said, " ", counting.now ? "The origin is counting." : isCurrent ? "" : button),
		...(counting.why === "" ? [] : [element("p", { class: "bad" }, `It was not counted: ${counting.why}`)]),
	];
}

function opener(image, open) {
	const button = element("button", { type: "button", class: "name", "data-focus": `open ${image}` }, image);
	button.addEventListener("click", () => open(image));
	return button;
}

/** All versions of an image. `look` is called with one whose files are to be shown, `close` to hide them. */
export function versions(image, all, look, close) {
	const button = element("button", { type: "button", "data-focus": "close versions" }, "Close");
	button.addEventListener("click", close);
	const columns = [
		{ title: "Version", cell: (it) => opener(`${it.image}@${it.number}`, look) },
		...SIZES,
		{ title: "State", cell: (it) => (it.claimed ? `${it.consistency} (reported by the uploader)` : it.consistency) },
		{ title: "Source", cell: (it) => it.source },
		{ title: "Note", cell: (it) => it.notes },
	];
	const held = all[0]?.current_edit_lock;
	return [
		element("h3", { id: "versions-title", tabindex: "-1" }, `Versions of ${image}`),
		say(held ? `${held.holder} holds its edit lock, number ${held.number}.` : "Nobody holds its edit lock."),
		table("versions-table", `Versions of ${image}, newest first`, columns, all),
		button,
	];
}

/** The growth of the store, as a diagram of this width. */
export function growth(facts, width) {
	if (facts.points.length === 0) {
		return [say("There are no versions yet.")];
	}
	const times = facts.stored_bytes > 0 ? `, ${(facts.allocated_bytes / facts.stored_bytes).toFixed(1)} times as much` : "";
	const columns = [
		{ title: "Up to version", cell: (it) => it.version },
		{ title: "Versions", kind: "number", cell: (it) => number(it.versions) },
		{ title: "Published", cell: (it) => moment(it.time_unix_ms) },
		{ title: "Added", kind: "number", cell: (it) => size(it.new_stored_bytes) },
		{ title: "Stored in total", kind: "number", cell: (it) => size(it.stored_bytes) },
		{ title: "In use in total", kind: "number", cell: (it) => size(it.allocated_bytes) },
	];
	const said =
		`${count(facts.versions, "version")} of ${count(facts.images.length, "image")} added ${bytes(facts.stored_bytes)} to the store. ` +
		`Their disks have ${bytes(facts.allocated_bytes)} in use${times}.`;
	return [
		element("p", { id: "growth-said" }, said),
		element("figure", {}, plot(facts.points, width), legend()),
		element(
			"details",
			{ id: "growth-details" },
			element("summary", { "data-focus": "growth details" }, "Show as a table"),
			table("growth-table", "Bytes added by the versions, in order of creation", columns, facts.points),
		),
	];
}

/** Hit rate from two counters; empty if both are 0. */
function hitRate(counters) {
	const [hits, misses] = [counters?.hits ?? 0, counters?.misses ?? 0];
	return hits + misses > 0 ? share(hits / (hits + misses)) : "";
}

function sizeIfKnown(value) {
	return typeof value === "number" ? size(value) : "";
}

/** Other counters as text, without those that have their own columns. */
function otherCounters(counters) {
	const shown = Object.entries(counters ?? {}).filter(([name]) => name !== "hits" && name !== "misses");
	const value = (name, count) => (name.endsWith("bytes") ? bytes(count) : count.toLocaleString("en"));
	return shown.map(([name, count]) => `${name.replaceAll("_", " ")} ${value(name, count)}`).join(", ");
}

/** Nodes, and whether their hoards are up to date. */
export function nodes(facts, hoardFacts) {
	if (facts?.isHidden) {
		return [say("Nodes are shown only to tokens for all images.")];
	}
	const known = facts?.nodes ?? [];
	const newest = Math.max(facts?.hoard_revision ?? 0, hoardFacts?.revision ?? 0);
	const revision = (it) => {
		if (typeof it.hoard_revision !== "number") {
			return "";
		}
		const late = newest - it.hoard_revision;
		return number(it.hoard_revision, late > 0 ? `${it.hoard_revision} (${late} behind)` : String(it.hoard_revision));
	};
	const columns = [
		{ title: "Node", cell: (it) => it.name },
		{ title: "State", kind: "short", cell: (it) => (it.is_there === false ? element("span", { class: "bad" }, "away") : element("span", { class: "good" }, "there")) },
		{ title: "Last report", cell: (it) => moment(it.seen_unix_ms) },
		{ title: "Address for peers", cell: (it) => it.peer_address ?? "does not share" },
		{ title: "Hoard revision", kind: "number", cell: revision },
		{ title: "Hit rate", kind: "short", cell: (it) => hitRate(it.counters) },
		{ title: "Disks", kind: "number", cell: (it) => number((it.disks ?? []).length) },
		{ title: "Counters", cell: (it) => otherCounters(it.counters) },
	];
	const note = known.length === 0 ? [say("No node has reported to this origin.")] : [];
	return [...note, table("nodes-table", "Nodes and their own reports", columns, known)];
}

/** Live disks, of this machine and of nodes. */
export function disks(local, nodeFacts) {
	const ofNodes = (nodeFacts?.nodes ?? []).flatMap((node) =>
		(node.disks ?? []).map((it) => ({
			disk: it.name,
			place: node.name,
			base: it.image,
			writable: it.writable,
			holder: it.edit_lock_holder ?? null,
			served: "",
		})),
	);
	const here = local.map((it) => ({
		...it,
		place: it.process === null && it.exports.length === 0 ? "nobody" : "this machine",
		served: it.exports.join(" "),
	}));
	const all = [...here, ...ofNodes];
	const lock = (it) => `${it.edit_lock}${it.lost ? " (lost)" : ""}`;
	const columns = [
		{ title: "Disk", cell: (it) => it.disk },
		{ title: "Served by", cell: (it) => it.place },
		{ title: "Access", cell: (it) => (it.writable ? "read-write" : "read-only") },
		{ title: "Edit lock held by", cell: (it) => it.holder ?? "" },
		{ title: "Lock", kind: "number", cell: (it) => (typeof it.edit_lock === "number" ? number(it.edit_lock, lock(it)) : "") },
		{ title: "Size", kind: "number", cell: (it) => (it.disk_bytes ? size(it.disk_bytes) : "") },
		{ title: "Written", kind: "number", cell: (it) => sizeIfKnown(it.writable ? it.written_bytes : undefined) },
		{ title: "Memory hits", kind: "short", cell: (it) => hitRate(it.cache) },
		{ title: "Served at", cell: (it) => it.served },
	];
	const note = all.length === 0 ? [say("No disk is attached, and no edit lock is held.")] : [];
	return [...note, table("disks-table", "Live disks, and disks with a held edit lock", columns, all)];
}

const CAST_WORDS = { waiting: "waits for receivers", casting: "is sending", done: "is done", failed: "has failed" };

/** Progress of a receiver. */
function received(it) {
	return it.state === "done" ? 1 : it.wanted_chunks > 0 ? it.done_chunks / it.wanted_chunks : 0;
}

/** Casts with their receivers. */
export function casts(all) {
	return all.length === 0 ? [say("No casts in the last ten minutes.")] : all.map(cast);
}

function cast(it) {
	const id = `cast-${it.id}`;
	const ended = it.state === "done" || it.state === "failed";
	const mean = it.receivers.length > 0 ? it.receivers.reduce((sum, one) => sum + received(one), 0) / it.receivers.length : 0;
	const silent = !ended && it.silent_seconds > 10 ? ` Its sender has been silent for ${seconds(it.silent_seconds)}.` : "";
	const words = CAST_WORDS[it.state] ?? it.state;
	const said =
		`${it.sender} ${words}: ${it.receivers_done} of ${count(it.receivers_total, "receiver")} done, ` +
		`${bytes(it.sent_bytes)} sent of ${bytes(it.cast_bytes)}, ${rate(it.rate_bits_per_second)} allowed, ${seconds(it.seconds)}.${silent}`;
	const columns = [
		{ title: "Receiver", cell: (one) => one.name },
		{ title: "State", kind: "short", cell: (one) => element("span", { class: one.state === "done" ? "good" : one.state === "failed" || one.state === "lost" ? "bad" : "" }, one.state) },
		{ title: "Received", kind: "short", cell: (one) => share(received(one)) },
		{ title: "Written", kind: "number", cell: (one) => (one.state === "done" ? size(one.written_bytes) : "") },
		{ title: "Limit", kind: "short", cell: (one) => one.limited_by ?? "" },
		{ title: "Repaired symbols", kind: "number", cell: (one) => number(one.repaired_symbols) },
		{ title: "Time", kind: "number", cell: (one) => number(one.seconds, seconds(one.seconds)) },
		{ title: "Reason", cell: (one) => one.reason ?? "" },
	];
	return element(
		"article",
		{ "aria-labelledby": id, "data-state": it.state },
		element("h3", { id }, `${it.version}: ${it.state}`),
		element("p", {}, said),
		...(it.reason ? [element("p", { class: "bad" }, it.reason)] : []),
		ended ? "" : progress(mean),
		table(`${id}-table`, `Receivers of ${it.version}`, columns, it.receivers),
	);
}

/** The hoard; a note for an origin without one. */
export function hoard(facts) {
	if (facts === null) {
		return [say("This origin has no hoard.")];
	}
	const members = facts.members ?? [];
	const columns = [
		{ title: "Version", cell: (it) => `${it.image}@${it.number}` },
		{ title: "Added in revision", kind: "number", cell: (it) => number(it.added) },
		{ title: "Blocks", kind: "number", cell: (it) => number(it.record.blocks) },
		{ title: "Bytes", kind: "number", cell: (it) => size(it.record.bytes) },
		{ title: "Boot time", kind: "number", cell: (it) => number(it.record.duration_ms, seconds(it.record.duration_ms / 1000)) },
		{ title: "Until", cell: (it) => it.record.marker },
		{ title: "Recorded", cell: (it) => moment(it.record.time_unix_ms) },
	];
	const sum = members.reduce((sum, it) => sum + it.record.bytes, 0);
	return [
		element("p", {}, `Revision ${facts.revision}: ${count(members.length, "boot set")}, ${bytes(sum)} in total.`),
		table("hoard-table", "Boot sets in the hoard", columns, members),
	];
}

const EVENT_WORDS = {
	version: (it) => `${it.image}@${it.number} was published.`,
	forget: (it) => `${it.image}@${it.number} was forgotten.`,
	rename: (it) => `${it.from}@${it.number} was renamed to ${it.to}@${it.number}.`,
	"edit-lock": (it) => (it.edit_lock ? `${it.edit_lock.holder} holds the edit lock of ${it.image}, number ${it.edit_lock.number}.` : `Nobody holds the edit lock of ${it.image}.`),
	upload: (it) => `An upload: ${it.state}.`,
	cast: (it) => `Cast of ${it.version}: ${it.state}.`,
	hoard: (it) => `The hoard has revision ${it.revision}.`,
	reset: () => "Some events were missed; all data was reloaded.",
};

/** An event as a sentence, with the current time. */
export function event(name, data) {
	const words = EVENT_WORDS[name]?.(data) ?? `${name}.`;
	return element("li", { class: "fresh", "data-event": name }, moment(Date.now()), ` ${words}`);
}
