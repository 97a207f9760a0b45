// The server, as a browser reaches it: gRPC-Web, which Envoy turns into gRPC.

import { createClient, type Client, type Interceptor } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { InferenceService } from "../gen/sluicegate/v1/inference_service_pb";

export type Server = Client<typeof InferenceService>;

/** `address` is a URL; empty: where this page comes from. `apiKey` empty: none. */
export function connect(address: string, apiKey: string): Server {
  const baseUrl = address || window.location.origin;
  return createClient(InferenceService, createGrpcWebTransport({ baseUrl, interceptors: apiKey ? [withKey(apiKey)] : [] }));
}

function withKey(apiKey: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${apiKey}`);
    return next(request);
  };
}
