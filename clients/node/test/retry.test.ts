import assert from "node:assert/strict";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { SluicegateError } from "../src/index.js";
import { waitAfter } from "../src/retry.js";
import { inAnHour, queueFull, Scripted, serving, soon } from "./server.js";

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
  assert.equal(waits.length, 2);
  assert(waits.every((waitMs) => 1 <= waitMs && waitMs <= 1.1), `waits ${waits}`);
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

for (const [code, calls] of [[status.INTERNAL, 1], [status.RESOURCE_EXHAUSTED, 1], [status.UNAVAILABLE, 2]] as const) {
  test(`${status[code]} without RetryInfo makes ${calls} of the calls`, async () => {
    const script = new Scripted(Array(2).fill({ code, details: "gone" }));
    await serving(script, async (client) => {
      const retry = { maxAttempts: 2, maxWaitMs: 1 };
      await assert.rejects(client.generate(HELLO, { retry }), { message: "gone" });
    });
    assert.equal(script.calls, calls);
  });
}

test("a server that asks for a longer wait than maxWaitMs is not waited for", async () => {
  for (const seconds of [31n, 2n ** 62n]) {
    const script = new Scripted([queueFull({ seconds, nanos: 0 })]);
    await serving(script, async (client) => {
      await assert.rejects(client.generate(HELLO, { retry: { maxAttempts: 5 } }), { reason: "QUEUE_FULL" });
    });
    assert.equal(script.calls, 1);
  }
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
    const retry = { maxAttempts: 5, maxWaitMs: Infinity, onWait: () => controller.abort() };
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

test("where the server gives no delay, waits double up to maxWaitMs, and at most half of one is random", () => {
  const unknown = new SluicegateError("", status.RESOURCE_EXHAUSTED, { reason: "", violations: [], retryAfterMs: 0 });
  for (const [attempt, most] of [[1, 200], [2, 400], [6, 6400], [9, 30_000], [9999, 30_000]] as const) {
    const wait = waitAfter(attempt, unknown);
    assert(wait !== undefined && most / 2 <= wait && wait <= most, `attempt ${attempt} waits ${wait}`);
  }
});
