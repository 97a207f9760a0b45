import {
  Metadata,
  type sendUnaryData,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { Any } from "../src/generated/google/protobuf/any.js";
import { BadRequest, ErrorInfo, RetryInfo } from "../src/generated/google/rpc/error_details.js";
import { Status } from "../src/generated/google/rpc/status.js";
import {
  Client,
  type ClientOptions,
  type GenerateRequest,
  GenerateResponse,
  GenerateStreamResponse,
  InferenceServiceService,
} from "../src/index.js";

/** Answers the first calls with `errors`, one each, and those after them well. */
export class Scripted {
  calls = 0;
  keys: unknown[] = [];
  /** Told of each call that its client cancels. */
  onCancelled = () => {};

  constructor(
    readonly errors: Partial<ServiceError>[] = [],
    /** How a stream ends after its delta; default: well. */
    readonly ending: Partial<ServiceError> | "well" | "never" = "well",
  ) {}

  next(metadata: Metadata): Partial<ServiceError> | undefined {
    this.keys = metadata.get("authorization");
    return this.errors[this.calls++];
  }
}

/** Runs `use` with a client of a server, on a real socket, that answers as `script` says, and its address. */
export async function serving(
  script: Scripted,
  use: (client: Client, address: string) => Promise<void>,
  options?: ClientOptions,
) {
  const server = new Server();
  server.addService(InferenceServiceService, {
    generate: (call: ServerUnaryCall<GenerateRequest, GenerateResponse>, callback: sendUnaryData<GenerateResponse>) =>
      callback(script.next(call.metadata) ?? null, GenerateResponse.fromPartial({ outputs: [{ text: " Paris." }] })),
    generateStream: (call: ServerWritableStream<GenerateRequest, GenerateStreamResponse>) => {
      const error = script.next(call.metadata);
      if (error !== undefined) return call.emit("error", error);
      call.on("cancelled", () => script.onCancelled());
      call.write(GenerateStreamResponse.fromPartial({ event: { $case: "delta", delta: { text: " Paris." } } }));
      if (script.ending === "well") call.end();
      else if (script.ending !== "never") call.emit("error", script.ending);
    },
  });
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  const address = `127.0.0.1:${port}`;
  const client = new Client(address, options);
  try {
    await use(client, address);
  } finally {
    client.close();
    server.forceShutdown();
  }
}

/** What a server says that has no room now; delay undefined: nor when it will have. */
export function queueFull(retryDelay?: RetryInfo["retryDelay"]): Partial<ServiceError> {
  return failure(status.RESOURCE_EXHAUSTED, "the queue is full", [
    detail("ErrorInfo", ErrorInfo.encode(ErrorInfo.fromPartial({ reason: "QUEUE_FULL", domain: "sluicegate" }))),
    detail("RetryInfo", RetryInfo.encode({ retryDelay })),
  ]);
}

export function invalid(violations: { field: string; description: string }[]): Partial<ServiceError> {
  return failure(status.INVALID_ARGUMENT, `${violations.length} fields are wrong`, [
    detail("ErrorInfo", ErrorInfo.encode(ErrorInfo.fromPartial({ reason: "INVALID_REQUEST", domain: "sluicegate" }))),
    detail("BadRequest", BadRequest.encode(BadRequest.fromPartial({ fieldViolations: violations }))),
  ]);
}

/** Two failures: one whose details are none, and one of whose details one is none. */
export function garbled(): Partial<ServiceError>[] {
  const garbage = Buffer.from([0xff, 0xff, 0xff]);
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", garbage);
  const code = status.RESOURCE_EXHAUSTED;
  const details = [
    { typeUrl: "type.googleapis.com/google.rpc.ErrorInfo", value: garbage },
    detail("RetryInfo", RetryInfo.encode({ retryDelay: undefined })),
  ];
  return [{ code, details: "full", metadata }, failure(code, "full", details)];
}

export const soon = () => queueFull({ seconds: 0n, nanos: 1_000_000 });
export const inAnHour = () => queueFull({ seconds: 3600n, nanos: 0 });

function detail(name: string, written: { finish(): Uint8Array }): Any {
  return { typeUrl: `type.googleapis.com/google.rpc.${name}`, value: Buffer.from(written.finish()) };
}

function failure(code: status, message: string, details: Any[]): Partial<ServiceError> {
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", Buffer.from(Status.encode({ code, message, details }).finish()));
  return { code, details: message, metadata };
}
