// Formats numbers and times for people; bytes in the same form as the command line.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Bytes with three digits and a decimal unit. */
export function bytes(number) {
	let value = number;
	let unit = 0;
	while (value >= 999.5 && unit + 1 < UNITS.length) {
		value /= 1000;
		unit += 1;
	}
	if (unit === 0) {
		return `${number} B`;
	}
	const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
	return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** Bits per second. */
export function rate(bitsPerSecond) {
	return `${(bitsPerSecond / 1e6).toFixed(bitsPerSecond < 1e7 ? 1 : 0)} Mbit/s`;
}

/** A share from 0 to 1 in percent; 100 % only for exactly 1, and 0 % only for exactly 0. */
export function percent(share) {
	const value = Math.min(Math.max(share * 100, 0), 100);
	if (value > 99.9 && value < 100) {
		return "99.9 %";
	}
	if (value > 0 && value < 0.1) {
		return "0.1 %";
	}
	return `${value.toFixed(value === 0 || value === 100 ? 0 : 1)} %`;
}

/** `3 versions`, `1 version`. */
export function count(number, noun) {
	return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** A duration in words. */
export function seconds(number) {
	if (number < 100) {
		return `${number.toFixed(number < 10 ? 1 : 0)} s`;
	}
	const minutes = Math.round(number / 60);
	return minutes < 120 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}

/** Date and time in the time zone of this machine; empty for an invalid time. */
export function time(unixMs) {
	const date = new Date(unixMs);
	if (Number.isNaN(date.getTime())) {
		return "";
	}
	const two = (number) => String(number).padStart(2, "0");
	const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
	return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
