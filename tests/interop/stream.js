// Streams one answer with grpc-js, from the proto files alone: node stream.js HOST:PORT PROTO_FOLDER INCLUDE_FOLDER MODE
// MODE: stream prints the text; cancel leaves after two deltas; refused prints the code and the field that is wrong.
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const [address, protoFolder, includeFolder, mode] = process.argv.slice(2);
const definition = protoLoader.loadSync("sluicegate/v1/inference_service.proto", {
  includeDirs: [protoFolder, includeFolder], longs: Number, enums: String, oneofs: true,
});
const { InferenceService } = grpc.loadPackageDefinition(definition).sluicegate.v1;
const client = new InferenceService(address, grpc.credentials.createInsecure());

const samplingParams = { temperature: 0, maxTokens: mode === "cancel" ? 2000 : 8, ignoreEos: mode === "cancel" };
if (mode === "refused") samplingParams.topP = 3;
const call = client.generateStream({ text: "The capital of France is", samplingParams });

let text = "";
let numDeltas = 0;
call.on("data", (response) => {
  if (response.event === "delta") {
    text += response.delta.text;
    numDeltas += 1;
    if (mode === "cancel" && numDeltas === 2) call.cancel();
  } else if (response.event === "finished") {
    console.log(JSON.stringify({ text, reason: response.finished.finishReason, usage: response.finished.usage }));
  }
});
call.on("error", (error) => console.log(JSON.stringify({ code: grpc.status[error.code], details: error.details })));
call.on("end", () => client.close());
