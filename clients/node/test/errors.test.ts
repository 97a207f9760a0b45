import assert from "node:assert/strict";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { SluicegateError } from "../src/index.js";
import { garbled, invalid, queueFull, Scripted, serving } from "./server.js";

const HELLO = { prompt: { $case: "text", text: "Hello" } } as const;

test("an invalid request's error names its reason and each violation, and is not to be retried", async () => {
  const violations = [
    { field: "model", description: "too long" },
    { field: "priority", description: "too low" },
  ];
  await serving(new Scripted([invalid(violations)]), async (client) => {
    await assert.rejects(client.generate(HELLO), (error) => {
      assert(error instanceof SluicegateError);
      assert.equal(error.code, status.INVALID_ARGUMENT);
      assert.equal(error.message, "2 fields are wrong");
      assert.equal(error.reason, "INVALID_REQUEST");
      assert.deepEqual(error.violations, violations);
      assert.equal(error.retryAfterMs, undefined);
      return true;
    });
  });
});

test("RetryInfo's delay is retryAfterMs; without a delay, or with one that has passed, it is 0", async () => {
  const delays = [{ seconds: 1n, nanos: 500_000_000 }, undefined, { seconds: -5n, nanos: -1 }];
  await serving(new Scripted(delays.map(queueFull)), async (client) => {
    for (const retryAfterMs of [1500, 0, 0]) {
      await assert.rejects(client.generate(HELLO), { name: "SluicegateError", reason: "QUEUE_FULL", retryAfterMs });
    }
  });
});

test("details that cannot be decoded are left out", async () => {
  await serving(new Scripted(garbled()), async (client) => {
    await assert.rejects(client.generate(HELLO), { name: "SluicegateError", message: "full", reason: "" });
    const events = client.generateStream(HELLO);
    await assert.rejects(events.next(), { name: "SluicegateError", message: "full", reason: "", retryAfterMs: 0 });
  });
});
