// Asks a server one question, and prints the answer as it comes: chat [--address HOST:PORT] [--ca FILE] QUESTION...
// An API key is taken from SLUICEGATE_API_KEY. Ctrl-C ends the answer, in the engine too.
import { parseArgs } from "node:util";
import { Client, SluicegateError, tlsCredentials } from "sluicegate-client";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    address: { type: "string" },
    ca: { type: "string" },
    "max-tokens": { type: "string", default: "256" },
  },
});
const interrupted = new AbortController();
process.once("SIGINT", () => interrupted.abort());

const client = new Client(values.address, {
  credentials: values.ca === undefined ? undefined : tlsCredentials({ ca: values.ca }),
  apiKey: process.env.SLUICEGATE_API_KEY,
});
try {
  const events = client.generateStream(
    {
      prompt: { $case: "chat", chat: { messages: [{ role: "user", content: positionals.join(" ") }] } },
      samplingParams: { maxTokens: Number(values["max-tokens"]) },
    },
    { signal: interrupted.signal, retry: { maxAttempts: 5 } },
  );
  for await (const event of events) {
    if (event.$case === "delta") process.stdout.write(event.delta.text);
  }
  process.stdout.write("\n");
} catch (error) {
  if (!(error instanceof SluicegateError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
} finally {
  client.close();
}
