// The client from CommonJS. It is the build in dist/cjs, not the ES modules.
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { Hansei, HanseiError } = require("@hansei/client");

test("the client can be required", () => {
  assert.equal(new Hansei({ url: "http://127.0.0.1:1", apiKey: "key" }).url, "http://127.0.0.1:1");
  assert.ok(HanseiError.prototype instanceof Error);
  assert.match(require.resolve("@hansei/client"), /cjs/);
});
