// Errors, retries and cancelling, against a server in this process that answers as each test says.

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <future>
#include <iostream>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "sluicegate/client.h"
#include "sluicegate/v1/inference_service.grpc.pb.h"

namespace {

using namespace std::chrono_literals;
using sluicegate::CallOptions;
using sluicegate::Client;
using sluicegate::Error;
using namespace sluicegate::v1;

int failures = 0;
#define EXPECT(condition) \
  if (!(condition)) std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition << std::endl, ++failures

// A refusal with all details; no RetryInfo if `retry_after` is negative.
grpc::Status Refusal(grpc::StatusCode code, std::chrono::milliseconds retry_after = -1ms) {
  google::rpc::Status rich;
  rich.set_code(code);
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  rich.add_details()->PackFrom(info);
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field("sampling_params.top_p");
  violation->set_description("must be in (0, 1], got 3.0");
  rich.add_details()->PackFrom(bad_request);
  if (retry_after >= 0ms) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_after / 1s);
    retry.mutable_retry_delay()->set_nanos(static_cast<int>(retry_after % 1s / 1ns));
    rich.add_details()->PackFrom(retry);
  }
  return grpc::Status(code, "refused", rich.SerializeAsString());
}

// Refuses `refusals` times with `status`, then answers "Paris".
class FakeServer : public InferenceService::Service {
 public:
  FakeServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    SetReady(true);
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  void SetReady(bool ready) { server_->GetHealthCheckService()->SetServingStatus("readiness", ready); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  Client Connect(const std::string& api_key = "") const { return Client(sluicegate::Connect(address()), api_key); }

  grpc::Status Generate(grpc::ServerContext* context, const GenerateRequest*, GenerateResponse* response) override {
    const auto& metadata = context->client_metadata();
    const auto found = metadata.find("authorization");
    if (found != metadata.end()) authorization = std::string(found->second.data(), found->second.size());
    if (++calls <= refusals) return status;
    response->add_outputs()->set_text("Paris");
    return grpc::Status::OK;
  }

  grpc::Status GenerateStream(grpc::ServerContext* context, const GenerateRequest*,
                              grpc::ServerWriter<GenerateStreamResponse>* writer) override {
    if (++calls <= refusals) return status;
    GenerateStreamResponse event;
    event.mutable_delta()->set_text("Paris");
    writer->Write(event);
    if (!endless) {
      event.mutable_finished();
      if (after_first.ok() && !breaks_off) writer->Write(event);
      return after_first;
    }
    while (writer->Write(event)) {
    }
    dropped.set_value(context->IsCancelled());
    return grpc::Status::OK;
  }

  std::atomic<int> calls = 0;
  int refusals = 0;
  grpc::Status status = Refusal(grpc::RESOURCE_EXHAUSTED, 1ms);
  grpc::Status after_first = grpc::Status::OK;
  bool endless = false;
  bool breaks_off = false;
  std::promise<bool> dropped;
  std::string authorization;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

CallOptions Attempts(int number, std::optional<std::chrono::milliseconds> timeout = {}) {
  CallOptions options;
  options.max_attempts = number;
  options.timeout = timeout;
  return options;
}

template <typename Call>
std::optional<Error> ErrorOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::string TextOf(sluicegate::Stream stream) {
  std::string text;
  for (const auto& event : stream) text += event.delta().text();
  return text;
}

// An error carries the code, the message and all details of the server.
void ErrorsHaveDetails() {
  FakeServer server;
  server.refusals = 1;
  server.status = Refusal(grpc::INVALID_ARGUMENT, 1500ms);
  const auto error = ErrorOf([&] { server.Connect().Generate({}); });
  EXPECT(error && error->code() == grpc::INVALID_ARGUMENT && error->what() == std::string("refused"));
  EXPECT(error && error->reason() == "QUEUE_FULL" && error->retry_after() == 1500ms);
  EXPECT(error && error->violations().size() == 1 && error->violations()[0].field == "sampling_params.top_p");
}

// An error of a server that says nothing more, or nothing that can be read, has a code, and no details.
void ErrorsWithoutDetails() {
  for (const char* details : {"", "\xff\xff\xff"}) {
    FakeServer server;
    server.refusals = 1;
    server.status = grpc::Status(grpc::INTERNAL, "oops", details);
    const auto error = ErrorOf([&] { server.Connect().Generate({}, Attempts(5)); });
    EXPECT(error && error->code() == grpc::INTERNAL && error->reason().empty() && !error->retry_after());
    EXPECT(server.calls == 1);
  }
}

// A server that says "again", but not when, or that is away, is asked less and less often.
void WaitsDoubleWhereNobodySays() {
  for (const auto& status : {Refusal(grpc::RESOURCE_EXHAUSTED, 0ms), grpc::Status(grpc::UNAVAILABLE, "away")}) {
    FakeServer server;
    server.refusals = 100;
    server.status = status;
    auto options = Attempts(4);
    options.max_wait = 350ms;
    std::vector<std::chrono::milliseconds> waits;
    options.on_wait = [&waits](const Error&, auto wait) { waits.push_back(wait); };
    EXPECT(ErrorOf([&] { server.Connect().Generate({}, options); }).has_value() && waits.size() == 3);
    EXPECT(waits[0] >= 100ms && waits[0] <= 200ms && waits[1] >= 175ms && waits[1] <= 350ms && waits[2] <= 350ms);
  }
}

// A server that asks for a longer wait than max_wait is not waited for.
void WaitsAreBounded() {
  FakeServer server;
  server.refusals = 100;
  for (const auto asked : {std::chrono::milliseconds(31s), std::chrono::milliseconds::max()}) {
    server.status = Refusal(grpc::RESOURCE_EXHAUSTED, asked);
    EXPECT(ErrorOf([&] { server.Connect().Generate({}, Attempts(5)); }).has_value());
  }
  EXPECT(server.calls == 2);
}

// A timeout beyond the end of the clock is none.
void TimeoutsMayBeLong() {
  FakeServer server;
  EXPECT(server.Connect().Generate({}, Attempts(1, std::chrono::milliseconds::max())).outputs_size() == 1);
}

// A refused call is made again until it is answered, and on_wait sees each refusal.
void RefusedCallsAreRetried() {
  FakeServer server;
  server.refusals = 2;
  auto options = Attempts(3, 60s);
  int seen = 0;
  options.on_wait = [&seen](const Error& error, auto wait) { seen += error.reason() == "QUEUE_FULL" && wait >= 1ms; };
  EXPECT(server.Connect().Generate({}, options).outputs(0).text() == "Paris");
  EXPECT(seen == 2 && server.calls == 3);
}

// Retries end with the attempts; by default there is one.
void AttemptsAreBounded() {
  FakeServer server;
  server.refusals = 100;
  EXPECT(ErrorOf([&] { server.Connect().Generate({}, Attempts(3)); }).has_value() && server.calls == 3);
  EXPECT(ErrorOf([&] { server.Connect().Generate({}); }).has_value() && server.calls == 4);
}

// A wait that would pass the deadline is not begun: the refusal is what the caller gets.
void RetriesKeepTheDeadline() {
  FakeServer server;
  server.refusals = 100;
  server.status = Refusal(grpc::UNAVAILABLE, 3600s);
  const auto error = ErrorOf([&] { server.Connect().Generate({}, Attempts(5, 60s)); });
  EXPECT(error && error->code() == grpc::UNAVAILABLE && server.calls == 1);
}

// A stream is begun again as long as nothing of it has come.
void RefusedStreamsAreRetried() {
  FakeServer server;
  server.refusals = 2;
  EXPECT(TextOf(server.Connect().GenerateStream({}, Attempts(3))) == "Paris" && server.calls == 3);
}

// Once a message has come, an error ends the stream.
void BegunStreamsAreNotRetried() {
  FakeServer server;
  server.after_first = Refusal(grpc::UNAVAILABLE, 1ms);
  const auto error = ErrorOf([&] { TextOf(server.Connect().GenerateStream({}, Attempts(5))); });
  EXPECT(error && error->code() == grpc::UNAVAILABLE && server.calls == 1);
}

// A stream that ends well, but not with its answer's end, has failed: a message of it was lost.
void StreamsThatBreakOff() {
  FakeServer server;
  server.breaks_off = true;
  const auto error = ErrorOf([&] { TextOf(server.Connect().GenerateStream({})); });
  EXPECT(error && error->code() == grpc::INTERNAL);
}

// Cancelling ends a stream without an error, also one that waits for its next attempt.
void CancelEndsTheWait() {
  FakeServer server;
  server.refusals = 100;
  server.status = Refusal(grpc::UNAVAILABLE, 3600s);
  auto options = Attempts(5);
  options.max_wait = 3600s;
  sluicegate::Stream* waiting = nullptr;
  options.on_wait = [&waiting](const Error&, auto) { waiting->Cancel(); };
  auto stream = server.Connect().GenerateStream({}, options);
  waiting = &stream;
  GenerateStreamResponse event;
  EXPECT(!stream.Read(&event) && stream.code() == grpc::CANCELLED && server.calls == 1);
}

// Dropping a stream that still runs cancels the call at the server.
void DroppingCancels() {
  FakeServer server;
  server.endless = true;
  {
    auto stream = server.Connect().GenerateStream({});
    GenerateStreamResponse event;
    EXPECT(stream.Read(&event) && event.delta().text() == "Paris");
  }
  EXPECT(server.dropped.get_future().get());
}

// The key goes along as a bearer token.
void TheKeyIsSent() {
  FakeServer server;
  server.Connect("sesame").Generate({});
  EXPECT(server.authorization == "Bearer sesame");
}

// With round_robin, calls go to all servers of an address that are ready, and to no other.
void CallsGoRound() {
  FakeServer one, other;
  other.SetReady(false);
  sluicegate::ConnectOptions options;
  options.round_robin = true;
  Client client(sluicegate::Connect("ipv4:" + one.address() + "," + other.address(), options));
  for (int i = 0; i < 10; ++i) client.Generate({});
  EXPECT(one.calls == 10 && other.calls == 0);
  other.SetReady(true);
  while (other.calls == 0) client.Generate({});
}

}  // namespace

int main() {
  grpc::EnableDefaultHealthCheckService(true);
  for (const auto test : {ErrorsHaveDetails, ErrorsWithoutDetails, WaitsDoubleWhereNobodySays,
                          WaitsAreBounded, TimeoutsMayBeLong, RefusedCallsAreRetried, AttemptsAreBounded,
                          RetriesKeepTheDeadline, RefusedStreamsAreRetried, BegunStreamsAreNotRetried, StreamsThatBreakOff,
                          CancelEndsTheWait, DroppingCancels, TheKeyIsSent, CallsGoRound}) {
    test();
  }
  std::cout << (failures ? "failed" : "passed") << std::endl;
  return failures ? 1 : 0;
}
