// Makes the calls that ../../../conformance/README.md lists and prints what comes of them.
import { Client } from "sluicegate-client";
import { cancel, deadline, invalid, overloadAndRetry, stream, tokens, unary, unknownModel } from "./calls.js";
import { environment } from "./outcome.js";
import { tlsAndKey } from "./tls.js";

// A server that hangs fails the run instead of holding it up.
const LIMIT_MS = 120_000;

async function main(): Promise<void> {
  const client = new Client(environment("SLUICEGATE_ADDRESS"));
  try {
    for (const call of [unary, tokens, stream, overloadAndRetry, cancel, deadline, invalid, unknownModel]) {
      await call(client);
    }
    await tlsAndKey();
  } finally {
    client.close();
  }
}

setTimeout(() => {
  console.error(`not done within ${LIMIT_MS / 1000} s`);
  process.exit(1);
}, LIMIT_MS).unref();
main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
