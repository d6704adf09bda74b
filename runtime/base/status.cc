#include "runtime/base/status.h"

#include <cerrno>
#include <ostream>
#include <system_error>

namespace dlaunch {

struct Status::State {
  StatusCode code;
  std::optional<int> peer;
  std::string message;
  std::shared_ptr<const State> cause;
};

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kPeerLost:
      return "peer lost";
    case StatusCode::kPeerLeft:
      return "peer left";
    case StatusCode::kUnauthenticated:
      return "unauthenticated";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kProtocol:
      return "protocol error";
    case StatusCode::kAborted:
      return "aborted";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kIo:
      return "I/O error";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, StatusCode code) {
  return out << to_string(code);
}

std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.to_string();
}

Status::Status(StatusCode code, std::string message)
    : state_(std::make_shared<State>(State{code, std::nullopt, std::move(message), nullptr})) {}

Status Status::about_peer(StatusCode code, int peer, std::string message) {
  Status status;
  status.state_ = std::make_shared<State>(
      State{code, peer, "peer " + std::to_string(peer) + ": " + std::move(message), nullptr});
  return status;
}

Status Status::from_errno(std::string_view call, int error_number) {
  std::string text = std::string(call) + ": " + std::generic_category().message(error_number);
  if (error_number == EMFILE) text += ": raise `ulimit -n`";
  return Status(StatusCode::kIo, std::move(text));
}

StatusCode Status::code() const {
  return state_ ? state_->code : StatusCode::kOk;
}

std::optional<int> Status::peer() const {
  for (const State* state = state_.get(); state != nullptr; state = state->cause.get()) {
    if (state->peer) return state->peer;
  }
  return std::nullopt;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string text;
  for (const State* state = state_.get(); state != nullptr; state = state->cause.get()) {
    if (!text.empty()) text += ": ";
    text += state->message;
  }
  return text;
}

Status Status::within(std::string context) const {
  if (ok()) return *this;
  Status outer;
  outer.state_ =
      std::make_shared<State>(State{state_->code, std::nullopt, std::move(context), state_});
  return outer;
}

Status Status::within_once(std::string context) const {
  for (auto state = state_; state != nullptr; state = state->cause) {
    const std::string& message = state->message;
    if (!message.starts_with(context)) continue;
    if (message.size() > context.size() && message[context.size()] != ':') continue;
    Status from_there;
    from_there.state_ = std::move(state);
    return from_there;
  }
  return within(std::move(context));
}

StatusError::StatusError(Status status)
    : std::runtime_error(status.to_string()), status_(std::move(status)) {}

void throw_if_error(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

}  // namespace dlaunch
