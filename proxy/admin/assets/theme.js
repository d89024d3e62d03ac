'use strict';
// Before the page is drawn: the light or the dark that was chosen by hand.
try {
	const theme = localStorage.getItem('theme');
	if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch { /* no storage, no choice */ }
