// Verifies requests as origins have received them, with the npm package web-bot-auth, and prints
// the nonce of each signature, or the error.
//
// Arguments: a file with {"jwk": KEY, "later": SECONDS, "requests": [{"url", "method", "headers"}]}.
// The clock is set to that many seconds later.
const { readFileSync } = require("node:fs");
const { verify } = require("web-bot-auth");
const { verifierFromJWK } = require("web-bot-auth/crypto");

const { jwk, later, requests } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...of) {
    super(...(of.length ? of : [RealDate.now() + later * 1000]));
  }
  static now() {
    return RealDate.now() + later * 1000;
  }
};

(async () => {
  const check = await verifierFromJWK(jwk);
  for (const request of requests) {
    // Version 0.1 was written for an earlier draft, in which Signature-Agent is one string: as the value of
    // "signature-agent";key="sig1" it takes the whole field, not the member.
    const agent = request.headers["signature-agent"];
    if (agent) request.headers["signature-agent"] = agent.replace(/^sig1=/, "");
    try {
      let nonce;
      await verify(request, (data, signature, params) => {
        nonce = params.nonce;
        return check(data, signature, params);
      });
      console.log(nonce);
    } catch (error) {
      console.log("error:" + error.message.replaceAll(" ", "_"));
    }
  }
})();
