'use strict';
// Runs before the page is drawn: sets the theme that the user has chosen.
try {
	const theme = localStorage.getItem('theme');
	if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch { /* no storage, no choice */ }
