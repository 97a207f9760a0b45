import type { ChatMessage, DeepPartial, GenerateRequest } from "./generated/sluicegate/v1/inference_service.js";

/** A request to continue text; spread it beside other fields as needed. */
export function fromText(text: string): DeepPartial<GenerateRequest> {
  return { prompt: { $case: "text", text } };
}

/** A request for the next turn of a conversation; spread it beside other fields as needed. */
export function fromChat(...messages: DeepPartial<ChatMessage>[]): DeepPartial<GenerateRequest> {
  return { prompt: { $case: "chat", chat: { messages } } };
}

/** What the user says in a conversation. */
export function user(content: string): DeepPartial<ChatMessage> {
  return { role: "user", content };
}
