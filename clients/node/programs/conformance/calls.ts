import { type Client, type DeepPartial, FinishReason, type GenerateRequest } from "sluicegate-client";
import { check, codeOf, failureOf, firstDeltas, textOf } from "./outcome.js";

const CAPITAL: GenerateRequest["prompt"] = { $case: "text", text: "The capital of France is" };
const QUESTION = "What is the capital of France? Answer in one sentence.";
const TEXT = "Grüße, 世界 🙂";

export const PARIS: DeepPartial<GenerateRequest> = {
  prompt: CAPITAL,
  samplingParams: { temperature: 0, maxTokens: 2 },
};
/** Runs for a while. */
const LONG: DeepPartial<GenerateRequest> = { prompt: CAPITAL, samplingParams: { ignoreEos: true, maxTokens: 2000 } };

export async function unary(client: Client): Promise<void> {
  const { outputs, usage } = await client.generate(PARIS);
  const [output] = outputs;
  check(output !== undefined && usage !== undefined, "unary: no output");
  const counts = `${usage.numPromptTokens} prompt tokens, ${usage.numOutputTokens} output tokens`;
  console.log(`unary: "${output.text}" ${FinishReason[output.finishReason]}, ${counts}`);
}

export async function tokens(client: Client): Promise<void> {
  const { tokenIds } = await client.tokenize({ input: { $case: "text", text: TEXT }, addSpecialTokens: false });
  const { text } = await client.detokenize({ tokenIds });
  check(text === TEXT, `tokens: ${TEXT} comes back as ${text}`);
  console.log(`tokens: "${text}" comes back`);
}

export async function stream(client: Client): Promise<void> {
  let text = "";
  let prompt = 0;
  const events = client.generateStream({
    prompt: { $case: "chat", chat: { messages: [{ role: "user", content: QUESTION }] } },
    samplingParams: { temperature: 0, maxTokens: 32 },
  });
  for await (const event of events) {
    switch (event.$case) {
      case "started":
        prompt = event.started.numPromptTokens;
        break;
      case "delta":
        text += event.delta.text;
        break;
      case "finished": {
        const { finishReason, usage } = event.finished;
        const end = `${FinishReason[finishReason]}, ${usage?.numOutputTokens} output tokens`;
        console.log(`stream: ${prompt} prompt tokens, "${text}", ${end}`);
      }
    }
  }
}

export async function overloadAndRetry(client: Client): Promise<void> {
  const busy = client.generateStream({
    prompt: CAPITAL,
    samplingParams: { n: 4, temperature: 1, ignoreEos: true, maxTokens: 300 },
  });
  await firstDeltas(busy, 1);
  const refusal = await failureOf(client.generate(PARIS));
  check(refusal.retryAfterMs !== undefined, "overload: refused without RetryInfo");
  console.log(`overload: ${codeOf(refusal)} ${refusal.reason}, to be retried`);
  await retry(client);
  for await (const _ of busy);
}

async function retry(client: Client): Promise<void> {
  let refusals = 0;
  const { outputs } = await client.generate(PARIS, { retry: { maxAttempts: 100, onWait: () => refusals++ } });
  check(refusals > 0, "retry: answered without a refusal");
  console.log(`retry: "${textOf(outputs)}" after a refusal`);
}

export async function cancel(client: Client): Promise<void> {
  const enough = 3;
  const controller = new AbortController();
  const events = client.generateStream(LONG, { signal: controller.signal });
  await firstDeltas(events, enough);
  controller.abort();
  const failure = await failureOf(firstDeltas(events, Infinity));
  console.log(`cancel: ${codeOf(failure)} after ${enough} deltas`);
}

export async function deadline(client: Client): Promise<void> {
  const failure = await failureOf(client.generate(LONG, { timeoutMs: 200 }));
  console.log(`deadline: ${codeOf(failure)}`);
}

export async function invalid(client: Client): Promise<void> {
  const failure = await failureOf(client.generate({ prompt: CAPITAL, samplingParams: { topP: 3, maxTokens: 0 } }));
  console.log(`invalid: ${codeOf(failure)} ${failure.reason}`);
  for (const { field, description } of failure.violations) console.log(`invalid: ${field}: ${description}`);
}

export async function unknownModel(client: Client): Promise<void> {
  const failure = await failureOf(client.generate({ ...PARIS, model: "no-such-model" }));
  console.log(`unknown model: ${codeOf(failure)} ${failure.reason}`);
}
