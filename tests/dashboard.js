// What tests/dashboard.py looks for in the page. Evaluated in it; gives an object of functions.
({
	// Every row of a table, as an object of what its cells say by the names of their columns: a number where there is one.
	rows(id) {
		const table = document.getElementById(id);
		const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
		const value = (cell) => {
			const data = cell.querySelector("data");
			return data ? Number(data.value) : cell.textContent;
		};
		return [...table.tBodies[0].rows].map((row) => Object.fromEntries([...row.cells].map((cell, at) => [titles[at], value(cell)])));
	},

	shown(id) {
		return document.getElementById(id).checkVisibility();
	},

	// What is wider than the screen.
	wide() {
		const limit = window.innerWidth + 1;
		const all = [...document.querySelectorAll("body *")].filter((it) => it.checkVisibility() && it.getBoundingClientRect().right > limit);
		return all.map((it) => `${it.tagName} ${it.id} ${it.className}`).slice(0, 5);
	},

	// Tables without a caption, or with a cell that names nothing.
	unnamed() {
		const bad = (table) => !table.caption?.textContent.trim() || [...table.querySelectorAll("th")].some((it) => !["col", "row"].includes(it.scope));
		return [...document.querySelectorAll("table")].filter(bad).map((it) => it.id);
	},

	// Headings that skip a level.
	skips() {
		const levels = [...document.querySelectorAll("h1, h2, h3, h4")].filter((it) => it.checkVisibility()).map((it) => Number(it.tagName[1]));
		return levels.filter((level, at) => (at === 0 ? level !== 1 : level > levels[at - 1] + 1));
	},

	// Fields and buttons that have no name.
	nameless() {
		const named = (it) => it.labels?.length > 0 || it.textContent.trim() !== "";
		return [...document.querySelectorAll("input, button, summary, a")].filter((it) => !named(it)).map((it) => it.outerHTML);
	},

	// Texts whose contrast with what they stand on is under 4.5 to 1 (WCAG 2.2, 1.4.3).
	faint() {
		const channels = (text) => text.match(/[\d.]+/g).map(Number);
		const luminance = ([r, g, b]) => {
			const linear = [r, g, b].map((it) => (it / 255 <= 0.04045 ? it / 255 / 12.92 : ((it / 255 + 0.055) / 1.055) ** 2.4));
			return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
		};
		const behind = (it) => {
			for (let at = it; at; at = at.parentElement) {
				const color = channels(getComputedStyle(at).backgroundColor);
				if (color.length === 3 || color[3] === 1) {
					return color;
				}
			}
			return [255, 255, 255];
		};
		const contrast = (it) => {
			const style = getComputedStyle(it);
			const color = it instanceof SVGElement ? style.fill : style.color;
			const [a, b] = [luminance(channels(color)), luminance(behind(it))];
			return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		};
		const says = (it) => [...it.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== "");
		const texts = [...document.querySelectorAll("body *")].filter((it) => it.tagName !== "title" && says(it) && it.checkVisibility());
		return texts.filter((it) => contrast(it) < 4.5).map((it) => `${it.tagName} ${it.className} ${contrast(it).toFixed(2)}`).slice(0, 5);
	},

	// Whether what has the focus shows it.
	focused() {
		const it = document.activeElement;
		const style = getComputedStyle(it);
		return it !== document.body && it.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
	},
})
