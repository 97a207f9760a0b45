// Talks with the model: each line of standard input is a question, whose answer is written as it comes.
// SLUICEGATE_ADDRESS says where the server is, SLUICEGATE_TLS_CA and SLUICEGATE_API_KEY how to get in.
import { createInterface } from "node:readline";
import { Client, fromChat, SluicegateError, tlsCredentials, user } from "sluicegate-client";

const { SLUICEGATE_ADDRESS: address, SLUICEGATE_TLS_CA: ca, SLUICEGATE_API_KEY: apiKey } = process.env;

async function talk(client: Client): Promise<void> {
  const messages = [];
  process.stdout.write("> ");
  for await (const question of createInterface({ input: process.stdin })) {
    messages.push(user(question));
    messages.push({ role: "assistant", content: await answer(client, messages) });
    process.stdout.write("\n> ");
  }
  process.stdout.write("\n");
}

async function answer(client: Client, messages: Parameters<typeof fromChat>): Promise<string> {
  const request = { ...fromChat(...messages), samplingParams: { maxTokens: 512 } };
  let text = "";
  for await (const event of client.generateStream(request, { retry: { maxAttempts: 5 } })) {
    if (event.$case !== "delta") continue;
    process.stdout.write(event.delta.text);
    text += event.delta.text;
  }
  return text;
}

const client = new Client(address || undefined, {
  credentials: ca ? tlsCredentials({ ca }) : undefined,
  apiKey: apiKey || undefined,
});
try {
  await talk(client);
} catch (error) {
  if (!(error instanceof SluicegateError)) throw error;
  console.error(`chat: ${error.message}`);
  process.exitCode = 1;
} finally {
  client.close();
}
