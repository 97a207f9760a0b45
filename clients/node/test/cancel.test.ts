import assert from "node:assert/strict";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { Scripted, serving } from "./server.js";

const HELLO = { prompt: { $case: "text", text: "Hello" } } as const;

test("a call whose signal is aborted already is CANCELLED", async () => {
  await serving(new Scripted(), async (client) => {
    await assert.rejects(client.generate(HELLO, { signal: AbortSignal.abort() }), { code: status.CANCELLED });
  });
});

test("a signal that aborts ends a stream, with CANCELLED", async () => {
  await serving(new Scripted([], "never"), async (client) => {
    const controller = new AbortController();
    const events = client.generateStream(HELLO, { signal: controller.signal });
    assert.equal((await events.next()).value?.$case, "delta");
    controller.abort();
    await assert.rejects(events.next(), { name: "SluicegateError", code: status.CANCELLED });
  });
});

test("one signal ends many calls, and Node has nothing to warn of", async () => {
  const warnings: Error[] = [];
  const listen = (warning: Error) => void warnings.push(warning);
  process.on("warning", listen);
  await serving(new Scripted([], "never"), async (client) => {
    const { signal } = new AbortController();
    const streams = Array.from({ length: 20 }, () => client.generateStream(HELLO, { signal }));
    await Promise.all(streams.map((events) => events.next()));
    await Promise.all(streams.map((events) => events.return(undefined)));
  });
  process.off("warning", listen);
  assert.deepEqual(warnings, []);
});

test("leaving the loop cancels the call", async () => {
  const script = new Scripted([], "never");
  const cancelled = new Promise<void>((resolve) => (script.onCancelled = resolve));
  await serving(script, async (client) => {
    for await (const _ of client.generateStream(HELLO)) break;
    await cancelled;
  });
});
