import { type SequenceOutput, SluicegateError, status, type StreamEvent } from "sluicegate-client";

export function environment(name: string): string {
  const value = process.env[name];
  check(value !== undefined, `${name} is not set`);
  return value;
}

export function check(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Error(otherwise);
}

export function textOf(outputs: SequenceOutput[]): string {
  return outputs.map(({ text }) => text).join("");
}

/** Reads up to delta number `count`, or to the end; `events` can be read on afterwards. */
export async function firstDeltas(events: AsyncIterator<StreamEvent>, count: number): Promise<void> {
  while (count > 0) {
    const { done, value } = await events.next();
    if (done) return;
    if (value.$case === "delta") count--;
  }
}

/** The error of a call that must fail. */
export async function failureOf(call: Promise<unknown>): Promise<SluicegateError> {
  try {
    await call;
  } catch (error) {
    if (error instanceof SluicegateError) return error;
    throw error;
  }
  throw new Error("a call that must fail went well");
}

export function codeOf(failure: SluicegateError): string {
  return status[failure.code] ?? String(failure.code);
}
