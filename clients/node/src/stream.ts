import type { ClientReadableStream } from "@grpc/grpc-js";
import { cancelOn } from "./cancel.js";
import { readable } from "./errors.js";
import type { GenerateStreamResponse } from "./generated/sluicegate/v1/inference_service.js";

/** One event of a request: its `$case` says which. */
export type StreamEvent = NonNullable<GenerateStreamResponse["event"]>;

/** Makes the call, and waits for its first event: until then it may be tried again. */
export async function openStream(
  makeCall: () => ClientReadableStream<GenerateStreamResponse>,
  signal?: AbortSignal,
): Promise<AsyncGenerator<StreamEvent>> {
  const events = eventsOf(makeCall, signal);
  const first = await events.next();
  return startingWith(first, events);
}

async function* startingWith(
  first: IteratorResult<StreamEvent>,
  rest: AsyncGenerator<StreamEvent>,
): AsyncGenerator<StreamEvent> {
  try {
    if (!first.done) yield first.value;
    yield* rest;
  } finally {
    await rest.return(undefined);
  }
}

async function* eventsOf(
  makeCall: () => ClientReadableStream<GenerateStreamResponse>,
  signal?: AbortSignal,
): AsyncGenerator<StreamEvent> {
  const call = makeCall();
  // The iteration throws the error; an error that comes when nobody iterates any more would end the process.
  call.on("error", () => {});
  const unfollow = cancelOn(signal, call);
  try {
    for await (const { event } of call as AsyncIterable<GenerateStreamResponse>) if (event !== undefined) yield event;
  } catch (error) {
    throw readable(error);
  } finally {
    unfollow();
    call.cancel();
  }
}
