#include "stream_impl.h"

#include "status.h"

namespace sluicegate {

Stream::Impl::Impl(Start start, const CallOptions& options) : start_(std::move(start)), attempts_(options) {
  StartAttempt();
}

Stream::Impl::~Impl() {
  Cancel();
  v1::GenerateStreamResponse unread;
  while (reader_ && reader_->Read(&unread)) {
  }
  if (reader_) reader_->Finish();
}

bool Stream::Impl::Read(v1::GenerateStreamResponse* event) {
  while (reader_) {
    if (reader_->Read(event)) {
      finished_ = event->has_finished();
      return answered_ = true;
    }
    grpc::Status status = reader_->Finish();
    reader_ = nullptr;
    // gRPC takes a message that it cannot read for the end.
    if (status.ok() && !finished_) status = {grpc::INTERNAL, "the answer breaks off, or cannot be read"};
    code_ = status.error_code();
    if (!status.ok()) Recover(ErrorOf(status));
  }
  return false;
}

void Stream::Impl::Cancel() {
  std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  context_->TryCancel();
  cancelling_.notify_all();
}

void Stream::Impl::StartAttempt() {
  auto context = std::make_unique<grpc::ClientContext>();
  attempts_.SetDeadline(context.get());
  reader_ = start_(context.get());
  std::lock_guard<std::mutex> lock(mutex_);
  context_ = std::move(context);
  // Cancelled between two attempts: there was no call yet to cancel.
  if (cancelled_) context_->TryCancel();
}

// Begins anew after `error`, or throws it; neither once the stream is cancelled, whatever it failed with meanwhile.
void Stream::Impl::Recover(const Error& error) {
  const auto wait = answered_ || cancelled_ ? std::nullopt : attempts_.WaitAfter(error);
  if (wait) Pause(*wait);
  if (cancelled_) {
    code_ = grpc::CANCELLED;
  } else if (wait) {
    StartAttempt();
  } else {
    throw error;
  }
}

void Stream::Impl::Pause(std::chrono::milliseconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  cancelling_.wait_for(lock, wait, [this] { return cancelled_.load(); });
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

bool Stream::Read(v1::GenerateStreamResponse* event) { return impl_->Read(event); }
void Stream::Cancel() { impl_->Cancel(); }
grpc::StatusCode Stream::code() const { return impl_->code(); }

}  // namespace sluicegate
