import assert from "node:assert/strict";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { SluicegateError } from "../src/index.js";
import { invalid, queueFull, Scripted, serving } from "./server.js";

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

test("RetryInfo's delay is retryAfterMs; RetryInfo without a delay is 0", async () => {
  const script = new Scripted([queueFull({ seconds: 1n, nanos: 500_000_000 }), queueFull()]);
  await serving(script, async (client) => {
    await assert.rejects(client.generate(HELLO), { name: "SluicegateError", reason: "QUEUE_FULL", retryAfterMs: 1500 });
    await assert.rejects(client.generate(HELLO), { name: "SluicegateError", reason: "QUEUE_FULL", retryAfterMs: 0 });
  });
});
