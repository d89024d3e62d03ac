'use strict';
// The overview: its charts, and new decisions.

// Charts.
(() => {
	const {at} = page;
	const figure = at('chart'), plot = at('plot'), readout = at('readout');
	const span = figure.dataset.span;
	const {bar, whole, said} = {'15min': {bar: 15, whole: 900, said: 'the last 15 minutes'}, hour: {bar: 60, whole: 3600, said: 'the last hour'}, day: {bar: 1200, whole: 86400, said: 'the last day'}}[span];
	// The classes of requests, from the bottom of a bar up: the member of the API, the colour, the word.
	const classes = [['allowed', 'allow', 'allowed'], ['disallowed', 'block', 'disallowed'], ['deferred', 'wait', 'deferred'], ['failed', 'fail', 'failed'], ['not_enforced', 'would', 'would be disallowed']];
	const key = kind => figure.querySelector(`.key [data-class="${kind}"]`);
	const counts = of => classes.filter(([, kind]) => !key(kind).hidden).map(([name,, word]) => `${number(of(name))} ${word}`).join(', ');
	const number = n => n.toLocaleString('en');
	const clock = t => new Date(t * 1000).toISOString().slice(11, bar < 60 ? 19 : 16);
	let plots = [], data = null, sentence = readout.textContent;

	page.stateURL = () => '/state?span=' + span;

	// Bars: the steps of the series are too fine to show.
	const bars = series => {
		const start = Date.parse(series.start) / 1000;
		const last = Math.floor(Date.now() / 1000 / bar) * bar;
		const x = [];
		for (let t = last - whole + bar; t <= last; t += bar) x.push(t);
		const none = () => x.map(() => 0), data = {x, waiting: none(), stacked: []};
		for (const [name] of classes) data[name] = none();
		series.waiting.forEach((n, i) => {
			const k = Math.floor((start + i * series.step_s - x[0]) / bar);
			if (k < 0 || k >= x.length) return;
			for (const [name] of classes) data[name][k] += series[name][i];
			data.waiting[k] = Math.max(data.waiting[k], n);
		});
		let below = none();
		for (const [name] of classes) data.stacked.push(below = data[name].map((n, i) => n + below[i]));
		data.stacked.reverse(); // the highest bar is drawn first, the others over it
		return data;
	};

	const colour = name => getComputedStyle(figure.querySelector(`.key .${name}`)).color;
	const hatch = () => {
		const size = 6 * devicePixelRatio, canvas = document.createElement('canvas'), c = canvas.getContext('2d');
		canvas.width = canvas.height = size;
		c.fillStyle = getComputedStyle(figure.closest('.card')).backgroundColor; // hides the bar behind
		c.fillRect(0, 0, size, size);
		c.strokeStyle = colour('block');
		c.lineWidth = size / 4;
		for (const from of [-size, 0, size]) {
			c.beginPath();
			c.moveTo(from - 1, size + 1);
			c.lineTo(from + size + 1, -1);
			c.stroke();
		}
		return c.createPattern(canvas, 'repeat');
	};

	const axis = (more = {}) => ({
		stroke: getComputedStyle(readout).color, font: '11px ' + getComputedStyle(document.body).fontFamily,
		grid: {stroke: getComputedStyle(figure.closest('.card')).borderTopColor, width: 1}, ticks: {show: false}, ...more,
	});
	const whole0 = (u, ticks) => ticks.map(n => Number.isInteger(n) ? number(n) : '');
	const make = (height, labels, series, values) => new uPlot({
		width: plot.clientWidth, height, legend: {show: false}, padding: [8, 20, labels ? 0 : 4, 0],
		tzDate: t => uPlot.tzDate(new Date(t * 1000), 'Etc/UTC'),
		cursor: {drag: {x: false, y: false}, y: false, points: {show: false}, sync: {key: 'overview'}},
		scales: {x: {time: true, range: (u, min, max) => [min - bar / 2, max + bar / 2]}, y: {range: (u, min, max) => [0, Math.max(4, max * 1.08)]}},
		axes: [
			axis({show: labels, size: 24, values: (u, ticks) => ticks.map(clock), grid: {show: false}, space: 60}),
			axis({size: 46, space: labels ? 22 : 32, values: whole0}),
		],
		series: [{}, ...series],
		hooks: {setCursor: [u => tell(u.cursor.idx)]},
	}, values, plot);

	const tell = i => {
		readout.textContent = i == null || !data ? sentence : `${clock(data.x[i])} UTC: ${counts(name => data[name][i])}; at most ${number(data.waiting[i])} waiting`;
	};
	const draw = () => {
		plots.forEach(p => p.destroy());
		plot.replaceChildren();
		const paths = uPlot.paths.bars({size: [.72, 40]}), points = {show: false};
		plots = [
			make(168, false, classes.map(([, kind]) => ({stroke: colour(kind), width: 1, fill: kind === 'block' ? hatch() : colour(kind), paths, points})).reverse(), [data.x, ...data.stacked]),
			make(96, true, [{stroke: colour('line'), width: 2, paths: uPlot.paths.stepped({align: 1}), points}], [data.x, data.waiting]),
		];
	};
	const update = async () => {
		if (document.hidden || page.paused) return;
		const response = await fetch('/api/v1/series?span=' + span);
		if (!response.ok) return;
		const series = await response.json(), sum = all => all.reduce((a, b) => a + b, 0);
		data = bars(series);
		if (sum(series.not_enforced) > 0) key('would').hidden = false;
		sentence = `In ${said}: ${counts(name => sum(series[name]))}; at most ${number(Math.max(0, ...series.waiting))} waiting at once.`;
		if (!plots.length) draw();
		else {
			plots[0].setData([data.x, ...data.stacked]);
			plots[1].setData([data.x, data.waiting]);
		}
		if (plots[0].cursor.idx == null) readout.textContent = sentence;
	};
	const quietly = () => update().catch(() => { /* the next look may find it */ });
	new ResizeObserver(() => plots.forEach(p => { if (p.width !== plot.clientWidth) p.setSize({width: plot.clientWidth, height: p.height}); })).observe(plot);
	const redraw = () => { if (data) draw(); };
	document.addEventListener('theme', redraw);
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
	document.addEventListener('visibilitychange', quietly);
	page.onpause.push(quietly);
	setInterval(quietly, 5000);
	quietly();
})();

// Decisions.
(() => {
	const most = 500; // rows, and lines kept while paused
	const {at} = page;
	const form = at('filters'), rows = at('rows'), shown = at('shown'), line = at('line');
	const records = new WeakMap();
	let source = null, fresh = [], came = 0, missed = 0, due = false, sought = null;

	// Escapes characters that are not printable, as the audit does; see visible in Go.
	const visible = text => String(text ?? '').replace(/[\p{C}\p{Z}]/gu, c => c === ' ' || c === '\t' ? c : '\\u' + c.codePointAt(0).toString(16).padStart(4, '0'));
	const cut = text => text && text.length > 300 ? visible(text.slice(0, 300)) + ' …' : visible(text);
	const length = ms => ms < 1000 ? `${Math.trunc(ms)} ms` : ms < 10000 ? `${Math.trunc(ms / 100) / 10} s` : ms < 60000 ? `${Math.trunc(ms / 1000)} s` : `${Math.trunc(ms / 60000)} min`;
	const pathOf = url => { const m = /^[^:]*:\/\/[^/]*(.*)$/su.exec(url); return m ? m[1] || '/' : url; };
	// The filter contains the words for all outcomes and reasons.
	const optionOf = (name, value) => [...form.elements[name].options].find(o => value && o.value === value);
	const outcome = r => r.decision === 'allow' ? 'allowed' : !r.enforced ? 'not_enforced' : optionOf('reason', r.reason)?.dataset.outcome ?? 'failed';
	const sign = r => {
		const {dataset, text} = optionOf('outcome', outcome(r));
		return [dataset.kind, dataset.icon, text];
	};
	const ended = r => { // lines are in this order
		const t = Date.parse(r.time) + Math.floor(r.duration_ms ?? 0);
		return Number.isNaN(t) ? '' : new Date(t).toISOString();
	};
	const read = line => { try { return JSON.parse(line); } catch { return {event: 'unreadable', detail: line}; } };
	const inPath = text => { try { return encodeURIComponent(text); } catch { return ''; } };
	const asked = r => r.method === 'CONNECT' ? `https://${r.url}/` : r.url ?? '';
	const askable = r => !r.event && !r.kind && r.host && r.reason !== 'malformed' && asked(r).includes('://');
	const use = r => { // as explain.Disallowed in Go
		const all = Object.entries(r.usage ?? {}).filter(([, u]) => u.outcome === 'disallowed').map(([purpose, u]) => `${purpose} (${cut(u.source)}${u.line ? ` line ${u.line}` : ''})`);
		return all.length ? 'not for ' + all.join(', ') : '';
	};
	const explain = r => {
		const ask = new URLSearchParams({url: asked(r)});
		if (r.user_agent) ask.set('agent', r.user_agent);
		if (r.client) ask.set('client', r.client);
		if (r.method && r.method !== 'GET' && r.method !== 'CONNECT') ask.set('method', r.method);
		return '/explain?' + ask;
	};

	const upgrade = tr => {
		const more = tr.querySelector('a.more');
		more.setAttribute('role', 'button');
		more.setAttribute('aria-expanded', 'false');
	};
	const build = (number, r) => {
		const tr = at('row').content.firstElementChild.cloneNode(true), slot = name => tr.querySelector(`[data-f="${name}"]`);
		const put = (name, text) => { slot(name).textContent = text; };
		const link = (name, href) => { if (r.host) slot(name).href = href; else slot(name).removeAttribute('href'); };
		const [kind, icon, word] = r.event ? ['plain', 'info', 'Event'] : r.kind ? ['plain', 'info', cut(r.kind)] : sign(r);
		tr.id = 'd' + number;
		records.set(tr, r);
		put('time', ended(r).slice(11, 19));
		slot('time').dateTime = ended(r);
		slot('is').className = 'is ' + kind;
		slot('is').querySelector('use').setAttribute('href', '#i-' + icon);
		put('word', word);
		slot('host').firstElementChild.textContent = cut(r.host);
		link('host', '/hosts/' + inPath(r.host ?? ''));
		put('method', cut(r.method));
		put('path', r.event ? cut(`${r.event} ${r.detail ?? ''}`) : cut(pathOf(r.url ?? '')));
		put('use', use(r));
		put('reason', r.rule && r.reason === 'rule' || r.reason === 'usage' && use(r) ? '' : optionOf('reason', r.reason)?.text ?? cut(r.reason));
		slot('reason').title = optionOf('reason', r.reason)?.dataset.why ?? '';
		put('rule', cut(r.rule));
		put('line', r.line ? 'line ' + r.line : '');
		for (const name of ['client', 'agent']) {
			put(name, cut(r[name]));
			slot(name).parentElement.classList.toggle('empty', !r[name]);
		}
		put('waited', r.wait_ms >= 1 ? length(r.wait_ms) : '');
		put('status', r.status ? String(r.status) : '');
		if (askable(r)) slot('explain').action = explain(r);
		else slot('explain').remove();
		slot('more').href = '/decisions/' + number;
		upgrade(tr);
		return tr;
	};

	const note = text => { line.textContent = text; };
	const tally = () => {
		shown.textContent = `${rows.querySelectorAll('tr:not(.record)').length.toLocaleString('en')} shown, ${came.toLocaleString('en')} new` + (missed ? `, ${missed.toLocaleString('en')} not shown because they came too fast` : '');
		at('nothing').hidden = rows.childElementCount > 0;
	};
	const flush = () => {
		due = false;
		if (page.paused || !fresh.length) return;
		const all = document.createDocumentFragment();
		const few = fresh.length <= 20; // animating hundreds of rows freezes the page for a second
		for (const [number, r] of fresh.reverse()) {
			const tr = build(number, r);
			if (few) tr.classList.add('fresh');
			all.append(tr);
		}
		fresh = [];
		rows.prepend(all);
		while (rows.childElementCount > most) rows.lastElementChild.remove();
		tally();
	};
	const take = (number, r) => {
		came++;
		fresh.push([number, r]);
		if (fresh.length > most) fresh.shift();
		if (page.paused) {
			page.held++;
			page.label();
		} else if (!due) {
			due = true;
			setTimeout(() => requestAnimationFrame(flush), 100);
		}
	};

	const sifted = () => {
		const p = new URLSearchParams(new FormData(form));
		for (const [name, value] of [...p]) if (!value.trim()) p.delete(name);
		return p;
	};
	const connect = () => {
		source?.close();
		const p = sifted();
		p.delete('span');
		p.set('after', at('live').dataset.newest);
		const own = source = new EventSource('/api/v1/decisions/stream?' + p);
		own.onopen = () => note('Live');
		own.onmessage = e => {
			at('live').dataset.newest = e.lastEventId;
			take(e.lastEventId, read(e.data));
		};
		own.addEventListener('missed', e => {
			missed += JSON.parse(e.data).missed;
			tally();
		});
		own.onerror = () => {
			note('Connection lost, reconnecting');
			if (own.readyState === EventSource.CLOSED && own === source) setTimeout(() => { if (own === source) connect(); }, 5000);
		};
	};

	// A filter applies to old and new rows: the server filters both.
	const filter = async () => {
		sought?.abort();
		sought = new AbortController();
		const address = '/?' + sifted();
		try {
			const found = await page.get(address, sought.signal);
			if (!found) return location.reload();
			history.replaceState(null, '', address);
			fresh = [];
			came = missed = page.held = 0;
			page.label();
			rows.replaceChildren(...found.getElementById('rows').children);
			rows.querySelectorAll('tr').forEach(upgrade);
			shown.textContent = found.getElementById('shown').textContent;
			at('nothing').replaceChildren(...found.getElementById('nothing').childNodes);
			at('nothing').hidden = rows.childElementCount > 0;
			page.say(shown.textContent);
			at('live').dataset.newest = found.getElementById('live').dataset.newest;
			connect();
		} catch (e) {
			if (e.name !== 'AbortError') note('No response from the proxy');
		}
	};
	let typed = 0;
	form.addEventListener('input', () => {
		clearTimeout(typed);
		typed = setTimeout(filter, 300);
	});
	form.addEventListener('submit', e => {
		e.preventDefault();
		clearTimeout(typed);
		filter();
	});

	// The whole record below its row, without the salts, which nobody reads.
	const open = more => {
		const tr = more.closest('tr'), after = tr.nextElementSibling;
		if (after?.classList.contains('record')) {
			after.remove();
			return more.setAttribute('aria-expanded', 'false');
		}
		const record = at('record').content.firstElementChild.cloneNode(true), list = record.querySelector('dl');
		for (const [name, value] of Object.entries(records.get(tr) ?? read(tr.dataset.record))) {
			if (name === 'salts') continue;
			for (const [kind, text] of [['dt', name], ['dd', typeof value === 'object' ? JSON.stringify(value) : value]]) {
				const bdi = document.createElement('bdi'), cell = document.createElement(kind);
				bdi.textContent = visible(text);
				cell.append(bdi);
				list.append(cell);
			}
		}
		tr.after(record);
		more.setAttribute('aria-expanded', 'true');
	};
	rows.addEventListener('click', e => {
		const more = e.target.closest('a.more');
		if (!more || e.ctrlKey || e.metaKey || e.shiftKey) return;
		e.preventDefault();
		open(more);
	});
	rows.addEventListener('keydown', e => {
		if (e.key !== ' ' || !e.target.matches('a.more')) return;
		e.preventDefault();
		open(e.target);
	});

	page.onpause.push(() => {
		page.held = 0;
		note(page.paused ? 'Paused' : 'Live');
		flush();
	});
	rows.querySelectorAll('tr').forEach(upgrade);
	connect();
})();
