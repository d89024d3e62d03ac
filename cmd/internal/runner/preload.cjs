'use strict';
// Node's own fetch does not support a proxy before Node 22.21 and 24. This
// script makes fetch use the proxy in the environment, with a tunnel for http:
// and https: alike. It loads nothing until fetch is first called, and keeps a
// dispatcher that the program has set by then. If anything fails here, fetch
// stays unchanged.
(() => {
  let proxy;
  try {
    const major = Number(process.versions.node.split('.')[0]);
    if (major >= 24 || process.allowedNodeEnvironmentFlags.has('--use-env-proxy')) return;
    proxy = new URL(process.env.https_proxy);
  } catch {
    return;
  }
  const original = globalThis.fetch;
  if (typeof original !== 'function') return;
  const dispatcher = Symbol.for('undici.globalDispatcher.1'); // the place in which undici, built-in or as a package, keeps it

  function connect(to, done) {
    const authority = `${to.hostname}:${to.port || (to.protocol === 'https:' ? 443 : 80)}`;
    const ask = require('node:http').request({
      host: proxy.hostname, port: proxy.port, agent: false,
      method: 'CONNECT', path: authority, headers: { host: authority },
    });
    let over = false;
    const end = (err, socket) => {
      if (over) return;
      over = true;
      done(err, socket);
    };
    ask.on('error', end);
    ask.once('connect', (answer, socket, head) => {
      if (answer.statusCode !== 200) {
        socket.destroy();
        end(new Error(`the proxy refuses ${authority}: ${answer.statusCode} ${answer.headers['proxy-status'] || ''}`));
        return;
      }
      if (head.length > 0) socket.unshift(head);
      socket.setNoDelay(true);
      if (to.protocol !== 'https:') {
        end(null, socket);
        return;
      }
      const host = to.hostname.replace(/^\[|\]$/g, '');
      const name = to.servername || (require('node:net').isIP(host) ? '' : host);
      const secure = require('node:tls').connect({ socket, host, servername: name, ALPNProtocols: ['http/1.1'] });
      secure.on('error', end);
      secure.once('secureConnect', () => end(null, secure));
    });
    ask.end();
  }

  let ready = false;
  function setUp() {
    ready = true;
    try {
      if (globalThis[dispatcher] !== undefined) return;
      original('data:,').catch(() => {}); // loads Node's undici, which sets an Agent of its own
      const Agent = globalThis[dispatcher].constructor;
      globalThis[dispatcher] = new Agent({ connect });
    } catch {
      // fetch stays unchanged
    }
  }

  globalThis.fetch = function fetch(input, init = undefined) {
    if (!ready) setUp();
    return original(input, init);
  };
})();
