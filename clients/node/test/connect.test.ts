import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../src/index.js";
import { Scripted, serving, soon } from "./server.js";

const HELLO = { prompt: { $case: "text", text: "Hello" } } as const;

test("the key is shown with a call", async () => {
  const script = new Scripted();
  await serving(script, async (client) => void (await client.generate(HELLO)), { apiKey: "secret" });
  assert.deepEqual(script.keys, ["Bearer secret"]);
});

test("with roundRobin, a call that one server refuses is answered by the other", async () => {
  const full = new Scripted(Array(1000).fill(soon()));
  await serving(full, (_, fullAddress) =>
    serving(new Scripted(), async (_, freeAddress) => {
      const client = new Client(`ipv4:${fullAddress},${freeAddress}`, { roundRobin: true });
      while (full.calls === 0) await client.generate(HELLO, { retry: { maxAttempts: 1000 } });
      client.close();
    }),
  );
});
