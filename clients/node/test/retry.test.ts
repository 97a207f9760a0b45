import assert from "node:assert/strict";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { waitAfter } from "../src/retry.js";
import { inAnHour, Scripted, serving, soon } from "./server.js";

const HELLO = { prompt: { $case: "text", text: "Hello" } } as const;

test("a call that is refused is made again, after the server's delay, until it is answered", async () => {
  const script = new Scripted([soon(), soon()]);
  const waits: number[] = [];
  await serving(script, async (client) => {
    const retry = { maxAttempts: 3, onWait: (_: Error, waitMs: number) => void waits.push(waitMs) };
    const { outputs } = await client.generate(HELLO, { retry });
    assert.equal(outputs[0]?.text, " Paris.");
  });
  assert.equal(script.calls, 3);
  assert.deepEqual(waits, [1, 1]);
});

for (const [retry, calls] of [[undefined, 1], [{ maxAttempts: 2 }, 2]] as const) {
  test(`${retry ? "maxAttempts 2" : "no retry"} makes ${calls} of the calls`, async () => {
    const script = new Scripted([soon(), soon(), soon()]);
    await serving(script, async (client) => {
      await assert.rejects(client.generate(HELLO, { retry }), { reason: "QUEUE_FULL" });
    });
    assert.equal(script.calls, calls);
  });
}

test("an error without RetryInfo is not retried, whatever its code", async () => {
  const script = new Scripted([{ code: status.UNAVAILABLE, details: "gone" }]);
  await serving(script, async (client) => {
    await assert.rejects(client.generate(HELLO, { retry: { maxAttempts: 5 } }), { message: "gone" });
  });
  assert.equal(script.calls, 1);
});

test("a wait that would outlast the deadline is not begun: the refusal is the error", async () => {
  await serving(new Scripted([inAnHour()]), async (client) => {
    const call = client.generate(HELLO, { timeoutMs: 60_000, retry: { maxAttempts: 5 } });
    await assert.rejects(call, { code: status.RESOURCE_EXHAUSTED });
  });
});

test("aborting the signal ends a wait", async () => {
  await serving(new Scripted([inAnHour()]), async (client) => {
    const controller = new AbortController();
    const retry = { maxAttempts: 5, onWait: () => controller.abort() };
    await assert.rejects(client.generate(HELLO, { signal: controller.signal, retry }), { code: status.CANCELLED });
  });
});

test("a stream is retried until its first event has come", async () => {
  const texts: string[] = [];
  await serving(new Scripted([soon()]), async (client) => {
    for await (const event of client.generateStream(HELLO, { retry: { maxAttempts: 2 } })) {
      if (event.$case === "delta") texts.push(event.delta.text);
    }
  });
  assert.deepEqual(texts, [" Paris."]);
});

test("a stream that fails after its first event is not retried, even with RetryInfo", async () => {
  const script = new Scripted([], soon());
  await serving(script, async (client) => {
    const events = client.generateStream(HELLO, { retry: { maxAttempts: 5 } });
    await events.next();
    await assert.rejects(events.next(), { reason: "QUEUE_FULL" });
  });
  assert.equal(script.calls, 1);
});

test("where the server gives no delay, waits double up to five seconds, and at most half of one is random", () => {
  for (const [attempt, most] of [[1, 100], [2, 200], [6, 3200], [7, 5000], [99, 5000]] as const) {
    const wait = waitAfter(attempt, 0);
    assert(most / 2 <= wait && wait <= most, `attempt ${attempt} waits ${wait}`);
  }
});
