export { type CallOptions, Client, type ClientOptions } from "./client.js";
export { DEFAULT_ADDRESS, type TlsFiles, tlsCredentials } from "./connect.js";
export { type Details, SluicegateError, type Violation } from "./errors.js";
export * from "./generated/sluicegate/v1/inference_service.js";
export { Choice, RepetitionDetection, SamplingParams } from "./generated/sluicegate/v1/sampling_params.js";
export { fromChat, fromText, user } from "./request.js";
export type { Retry } from "./retry.js";
export type { StreamEvent } from "./stream.js";
export { status } from "@grpc/grpc-js";
