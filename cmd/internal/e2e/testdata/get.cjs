// Fetches URLs in turn with undici's or Node's own fetch; one JSON line each.
let get = globalThis.fetch;
if (process.argv[2] === "undici") {
  const undici = require("undici");
  undici.setGlobalDispatcher(new undici.EnvHttpProxyAgent());
  get = undici.fetch;
}

(async () => {
  for (const url of process.argv.slice(3)) {
    const r = await get(url);
    const body = Buffer.from(await r.arrayBuffer());
    const headers = Object.fromEntries(r.headers);
    console.log(JSON.stringify({ url, status: r.status, headers, body: body.toString("base64") }));
  }
})().catch((err) => {
  console.error(err);
  process.exit(1);
});
