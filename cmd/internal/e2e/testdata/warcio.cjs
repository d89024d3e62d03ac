// Reads, indexes and writes WARC files with the npm package warcio. What it prints on standard
// error are the warnings of that package.
//
//   read FILE...    prints a JSON object for each record, with the SHA-256 of its payload as stored
//   index FILE...   prints the lines of a CDXJ index, not sorted
//   write FILE      writes the records of the JSON array on standard input, compressed if FILE ends in .gz
const { createHash } = require("node:crypto");
const { createReadStream, readFileSync, writeFileSync } = require("node:fs");
const { basename } = require("node:path");
const { CDXIndexer, WARCParser, WARCRecord, WARCSerializer } = require("warcio");

const [action, ...files] = process.argv.slice(2);

async function read(file) {
  const parser = new WARCParser(createReadStream(file), { keepHeadersCase: true });
  for await (const record of parser) {
    const payload = await record.readFully(false);
    const { offset, recordLength } = parser;
    console.log(JSON.stringify({
      file: basename(file), offset, length: recordLength,
      type: record.warcType, id: record.warcHeader("WARC-Record-ID"), url: record.warcTargetURI,
      concurrent: record.warcConcurrentTo, refers: record.warcHeader("WARC-Refers-To"),
      truncated: record.warcHeader("WARC-Truncated"), digest: record.warcPayloadDigest,
      status: record.warcType === "response" ? record.httpHeaders?.statusCode : undefined,
      bytes: payload.length, sha256: createHash("sha256").update(payload).digest("hex"),
    }));
  }
}

async function index(file) {
  const indexer = new CDXIndexer({ format: "cdxj" });
  for await (const entry of indexer.iterIndex([{ filename: basename(file), reader: createReadStream(file) }])) {
    process.stdout.write(indexer.serialize(entry));
  }
}

async function write(file) {
  const written = [];
  for (const { body, ...options } of JSON.parse(readFileSync(0, "utf8"))) {
    const record = WARCRecord.create({ warcVersion: "WARC/1.1", ...options }, [Buffer.from(body ?? "", "base64")]);
    written.push(await WARCSerializer.serialize(record, { gzip: file.endsWith(".gz") }));
  }
  writeFileSync(file, Buffer.concat(written));
}

(async () => {
  for (const file of files) await { read, index, write }[action](file);
})();
