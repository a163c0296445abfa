// Makes what the page shows. Whatever comes from the origin (names, notes, holders, reasons) was written by somebody else and
// goes in as text, never as markup: this file is the only one that makes elements.

import { bytes, percent, time } from "./numbers.js";

const SVG = "http://www.w3.org/2000/svg";
/** Rows of a table that are shown at once. */
const ROWS_MAX = 500;

/** The element of that id. */
export function byId(id) {
	return document.getElementById(id);
}

/** An element with attributes; what is inside is elements and texts. */
export function element(name, attributes = {}, ...inside) {
	return filled(document.createElement(name), attributes, inside);
}

/** The same in a drawing. */
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

/** Puts something in place of what an element had. */
export function fill(place, ...inside) {
	place.replaceChildren(...inside);
}

/** A number of bytes, which programs can read too. */
export function size(number) {
	return element("data", { value: number }, bytes(number));
}

/** A number, which programs can read too. */
export function number(value, text = String(value)) {
	return element("data", { value }, text);
}

/** A moment. */
export function moment(unixMs) {
	const date = new Date(unixMs);
	const isDate = !Number.isNaN(date.getTime());
	return element("time", isDate ? { datetime: date.toISOString() } : {}, time(unixMs));
}

/** A share of 1: a bar to look at and a number to read. */
export function share(value) {
	return element("span", { class: "share" }, bar(value, 64, 10), number(value.toFixed(4), percent(value)));
}

/** How far something is. */
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
