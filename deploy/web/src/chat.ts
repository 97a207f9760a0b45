// Turns of a conversation: each sends all before it, and takes the answer as it comes.

import { Code, ConnectError } from "@connectrpc/connect";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { FinishReason, type GenerateRequestSchema } from "../gen/sluicegate/v1/inference_service_pb";
import type { Server } from "./connection";
import { Failure } from "./failure";
import { Pace } from "./pace";
import type { AnswerView } from "./transcript";

export interface Message {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

export type Sampling = MessageInitShape<typeof GenerateRequestSchema>["samplingParams"];

export class Chat {
  private readonly messages: Message[] = [];

  /**
   * Returns what went wrong. `signal` cancels the call. The question is part of the conversation only with an answer,
   * of which there may be a part alone: templates of models know no turn without words.
   */
  async ask(question: string, system: string, sampling: Sampling, server: Server, view: AnswerView, signal: AbortSignal): Promise<Failure | undefined> {
    const asked: Message = { role: "user", content: question };
    const before: Message[] = system ? [{ role: "system", content: system }] : [];
    const request = requestFor([...before, ...this.messages, asked], sampling);
    const pace = new Pace();
    let answer = "";
    let how = "ended";
    try {
      for await (const { event } of server.generateStream(request, { signal })) {
        if (event.case === "delta") {
          answer += event.value.text;
          pace.note(event.value.tokenIds.length);
          view.more(event.value.text, pace);
        } else if (event.case === "finished") {
          how = HOW[event.value.finishReason];
        }
      }
    } catch (error) {
      if (!isOwnCancel(error, signal)) {
        view.end(pace, "failed");
        return Failure.of(error);
      }
      how = "stopped by you";
    }
    view.end(pace, how);
    if (answer !== "") this.messages.push(asked, { role: "assistant", content: answer });
    return undefined;
  }
}

/** Token ids are asked for to be counted: a message may have several tokens, or text of none. */
function requestFor(messages: Message[], sampling: Sampling): MessageInitShape<typeof GenerateRequestSchema> {
  return {
    prompt: { case: "chat", value: { messages } },
    samplingParams: sampling,
    outputOptions: { tokenIds: true },
  };
}

function isOwnCancel(error: unknown, signal: AbortSignal): boolean {
  return signal.aborted && ConnectError.from(error).code === Code.Canceled;
}

const HOW: Record<FinishReason, string> = {
  [FinishReason.UNSPECIFIED]: "ended",
  [FinishReason.STOP]: "complete",
  [FinishReason.LENGTH]: "cut off at max tokens",
  [FinishReason.ABORT]: "aborted by the server",
  [FinishReason.ERROR]: "ended by an error",
  [FinishReason.REPETITION]: "ended, since it repeated itself",
};
