// Creates the elements of the page. This is the only file that does: texts from the origin (names, notes, holders, reasons)
// are not trusted, so they are inserted as text, never as markup.

import { bytes, percent, time } from "./numbers.js";

const SVG = "http://www.w3.org/2000/svg";
/** Number of table rows that are shown at first. */
const ROWS_MAX = 500;

/** Returns the element with this id. */
export function byId(id) {
	return document.getElementById(id);
}

/** Creates an element with attributes, and with elements and texts as children. */
export function element(name, attributes = {}, ...inside) {
	return filled(document.createElement(name), attributes, inside);
}

/** Creates an SVG element in the same way. */
export function drawn(name, attributes = {}, ...inside) {
	return filled(document.createElementNS(SVG, name), attributes, inside);
}

function filled(made, attributes, inside) {
	for (const [name, value] of Object.entries(attributes)) {
		made.setAttribute(name, value);
	}
	// Texts become text nodes.
	made.append(...inside.filter((part) => part !== null && part !== undefined));
	return made;
}

/** Replaces the children of an element. */
export function fill(place, ...inside) {
	place.replaceChildren(...inside);
}

/** A size in bytes, with its exact value for programs. */
export function size(number) {
	return element("data", { value: number }, bytes(number));
}

/** A number, with its exact value for programs. */
export function number(value, text = String(value)) {
	return element("data", { value }, text);
}

/** A time. */
export function moment(unixMs) {
	const date = new Date(unixMs);
	const isDate = !Number.isNaN(date.getTime());
	return element("time", isDate ? { datetime: date.toISOString() } : {}, time(unixMs));
}

/** A share from 0 to 1, as a bar and a number. */
export function share(value) {
	return element("span", { class: "share" }, bar(value, 64, 10), number(value.toFixed(4), percent(value)));
}

/** Progress. */
export function progress(value) {
	const drawing = bar(value, 100, 4);
	drawing.setAttribute("class", "progress");
	drawing.setAttribute("preserveAspectRatio", "none");
	return drawing;
}

function bar(value, width, height) {
	const filledWidth = Math.min(Math.max(value, 0), 1) * width;
	return drawn(
		"svg",
		{ viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", focusable: "false" },
		drawn("rect", { class: "track", width, height }),
		drawn("rect", { class: "fill", width: filledWidth.toFixed(2), height }),
	);
}

/**
 * A table. `columns` have a title, the kind of their cells (`number`, `short` or nothing), and give the contents of a cell; the
 * first column names its row. Roles are written out, since a phone shows rows as blocks.
 */
export function table(id, title, columns, rows) {
	const label = (column) => element("th", { scope: "col", role: "columnheader", class: column.kind ?? "" }, column.title);
	const head = element("tr", { role: "row" }, ...columns.map(label));
	const shown = rows.slice(0, ROWS_MAX).map((row) => tableRow(columns, row));
	const left = rows.length - shown.length;
	const text = left > 0 ? `${title}, the first ${shown.length} of ${rows.length}` : title;
	return element(
		"table",
		{ id, role: "table", "aria-labelledby": `${id}-caption` },
		element("caption", { id: `${id}-caption` }, text),
		element("thead", { role: "rowgroup" }, head),
		element("tbody", { role: "rowgroup" }, ...shown),
	);
}

function tableRow(columns, row) {
	const cells = columns.map((column, at) => {
		const contents = column.cell(row) ?? "";
		if (at === 0) {
			return element("th", { scope: "row", role: "rowheader" }, contents);
		}
		const kinds = [column.kind, contents === "" ? "empty" : null].filter(Boolean).join(" ");
		return element("td", { role: "cell", class: kinds, "data-label": column.title }, contents);
	});
	return element("tr", { role: "row" }, ...cells);
}
