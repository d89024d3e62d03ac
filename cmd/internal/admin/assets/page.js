'use strict';
// On every page: keeps the page up to date until the user pauses it. The server renders
// the whole page again; parts marked data-live replace the old ones.

const page = (() => {
	const each = 5000; // ms between two updates
	const at = id => document.getElementById(id);
	const page = {at, paused: false, held: 0, onpause: [], stateURL: () => location.pathname + location.search};

	page.say = text => { at('said').textContent = text; };

	page.stored = (name, value) => {
		try {
			if (value === undefined) return localStorage.getItem(name);
			localStorage.setItem(name, value);
		} catch { /* no storage: it holds for this page */ }
		return value;
	};

	// Loads a page of the proxy; null if the user must log in first.
	page.get = async (url, signal) => {
		const response = await fetch(url, {signal, headers: {Accept: 'text/html'}});
		if (new URL(response.url).pathname === '/login') return null;
		return new DOMParser().parseFromString(await response.text(), 'text/html');
	};

	page.icon = name => {
		const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
		const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
		svg.setAttribute('class', 'i');
		svg.setAttribute('aria-hidden', 'true');
		use.setAttribute('href', '#i-' + name);
		svg.append(use);
		return svg;
	};

	// Live parts. A part that contains the focus or a selection is not replaced.
	const taken = part => part.contains(document.activeElement) || (getSelection().type === 'Range' && getSelection().containsNode(part, true));
	const put = fresh => {
		for (const part of document.querySelectorAll('[data-live]')) {
			const next = fresh.getElementById(part.id);
			if (next && !taken(part) && !part.isEqualNode(next)) part.replaceWith(document.adoptNode(next));
		}
	};
	const lost = () => {
		at('health').className = 'is block';
		at('health').replaceChildren(page.icon('block'), 'No response');
	};
	page.refresh = async () => {
		if (document.hidden || page.paused) return;
		try {
			const fresh = await page.get(page.stateURL());
			if (!fresh) return location.reload();
			if (!page.paused) put(fresh);
		} catch { lost(); }
	};
	setInterval(page.refresh, each);
	document.addEventListener('visibilitychange', page.refresh);

	// Pause.
	const pause = at('pause');
	page.label = () => {
		if (!pause) return;
		const text = page.paused ? (page.held ? `Resume (${page.held.toLocaleString('en')} new)` : 'Resume') : 'Pause';
		pause.replaceChildren(page.icon(page.paused ? 'play' : 'pause'), text);
		pause.setAttribute('aria-pressed', page.paused);
	};
	page.toggle = () => {
		if (!pause) return;
		page.paused = !page.paused;
		page.onpause.forEach(f => f());
		page.label();
		page.say(page.paused ? 'Paused' : 'Live again');
		page.refresh();
	};
	if (pause) {
		pause.hidden = false;
		pause.addEventListener('click', page.toggle);
		page.label();
	}

	// Light or dark.
	const theme = at('theme');
	const next = {auto: 'light', light: 'dark', dark: 'auto'};
	let chosen = next[page.stored('theme')] ? page.stored('theme') : 'auto';
	const dress = () => {
		if (chosen === 'auto') delete document.documentElement.dataset.theme;
		else document.documentElement.dataset.theme = chosen;
		theme.textContent = 'Theme: ' + chosen;
		document.dispatchEvent(new Event('theme'));
	};
	theme.hidden = false;
	theme.addEventListener('click', () => {
		chosen = next[chosen];
		page.stored('theme', chosen);
		dress();
	});
	dress();

	// Keys, unless they were turned off (WCAG 2.1.4).
	const keys = at('keys');
	let listens = page.stored('keys') !== 'off';
	if (keys) {
		const label = () => { keys.textContent = listens ? 'Turn keys off' : 'Turn keys on'; };
		at('shortcuts').hidden = false;
		keys.addEventListener('click', () => {
			listens = !listens;
			page.stored('keys', listens ? 'on' : 'off');
			label();
		});
		label();
	}
	document.addEventListener('keydown', e => {
		if (!listens || e.defaultPrevented || e.ctrlKey || e.altKey || e.metaKey) return;
		if (e.target.closest('input, select, textarea, [contenteditable]')) return;
		const button = e.target.closest('a, button, summary, [tabindex="0"]');
		if (e.key === '/' && at('q')) {
			at('q').focus();
			at('q').select();
		} else if ((e.key === 'p' || (e.key === ' ' && !button)) && pause) page.toggle();
		else return;
		e.preventDefault();
	});
	return page;
})();
