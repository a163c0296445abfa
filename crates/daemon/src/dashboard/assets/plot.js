// The growth of the store as a diagram: the sum as an area, the bytes that each version added as bars. The table beside it has
// the same data.

import { drawn, element } from "./elements.js";
import { bytes, count } from "./numbers.js";

const HEIGHT = 256;
const LEFT = 64;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 28;
const LINES = 4;

/** Draws the points in order, each with `version`, `new_stored_bytes` and `stored_bytes`. */
export function growth(points, width) {
	const plotWidth = Math.max(width - LEFT - RIGHT, 40);
	const plotHeight = HEIGHT - TOP - BOTTOM;
	const highest = niceAbove(points.at(-1).stored_bytes);
	const step = plotWidth / points.length;
	const x = (at) => LEFT + step * at;
	const y = (value) => TOP + plotHeight * (1 - value / highest);
	const corners = points.flatMap((point, at) => [`${x(at)},${y(point.stored_bytes)}`, `${x(at + 1)},${y(point.stored_bytes)}`]);
	const bottom = y(0);
	const bar = Math.max(Math.min(step * 0.6, 24), 0.5);
	const bars = points.map((point, at) => {
		const top = y(point.new_stored_bytes);
		const said = `${point.version}: ${bytes(point.new_stored_bytes)} new, ${bytes(point.stored_bytes)} in total`;
		return drawn(
			"rect",
			{ class: "bar", x: x(at) + (step - bar) / 2, y: top, width: bar, height: Math.max(bottom - top, 0) },
			drawn("title", {}, said),
		);
	});
	return drawn(
		"svg",
		{
			class: "plot",
			viewBox: `0 0 ${width} ${HEIGHT}`,
			role: "img",
			"aria-labelledby": "growth-plot-title",
			"aria-describedby": "growth-said",
		},
		drawn("title", { id: "growth-plot-title" }, `Bytes stored, version by version: ${count(points.length, "point")}`),
		...lines(highest, y, width),
		drawn("polygon", { class: "area", points: [`${LEFT},${bottom}`, ...corners, `${x(points.length)},${bottom}`].join(" ") }),
		...bars,
		drawn("polyline", { class: "total", points: corners.join(" ") }),
		drawn("text", { x: LEFT, y: HEIGHT - 8 }, shortened(points[0].version, plotWidth / 2)),
		drawn("text", { x: width - RIGHT, y: HEIGHT - 8, "text-anchor": "end" }, shortened(points.at(-1).version, plotWidth / 2)),
	);
}

/** The legend. */
export function legend() {
	return element("p", { class: "quiet" }, "Area: total stored bytes. Bars: bytes added by each version, from first to last.");
}

function lines(highest, y, width) {
	return Array.from({ length: LINES + 1 }, (_, at) => {
		const value = (highest * at) / LINES;
		return [
			drawn("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
			drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, bytes(Math.round(value))),
		];
	}).flat();
}

/** Rounds `value` up to a round number. */
function niceAbove(value) {
	const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
	const factor = [1, 2, 4, 5, 8, 10].find((factor) => factor * power >= value) ?? 10;
	return factor * power;
}

/** Cuts a name to approximately the available width. */
function shortened(text, width) {
	const room = Math.max(Math.floor(width / 8), 4);
	return text.length <= room ? text : `${text.slice(0, room - 1)}\u2026`;
}
