// Status and Result<T>: how transport, rendezvous and collectives report errors.
//
// An error has a code, the peer rank it is about (if there is one), a message and the chain of what
// happened below it, so that a failure on another thread keeps its whole story:
//
//   all_reduce #12 f32[1000]: step 3: peer 2: connection reset
//
// Values are immutable and cheap to copy (success is a null pointer); every function may be called
// from any thread.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace dlaunch {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller passed something that can never work
  kMismatch,         // ranks called different operations, counts, dtypes or roots
  kTimeout,          // a deadline passed
  kPeerLost,         // a peer died or its connection broke
  kPeerLeft,         // a peer closed its communicator in an orderly way while it was still needed
  kUnauthenticated,  // a connection could not prove the job's token
  kUnavailable,      // nobody listens there, or a port is taken
  kProtocol,         // bytes that no peer of ours sends
  kAborted,          // given up because something else failed first
  kNotFound,
  kIo,  // a system call failed
};

/// "timeout", "peer lost", ...
std::string_view to_string(StatusCode code);
std::ostream& operator<<(std::ostream& out, StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(StatusCode code, std::string message);
  /// An error about the rank `peer`, which the text names: "peer 2: connection reset".
  static Status about_peer(StatusCode code, int peer, std::string message);
  /// A failed system call: "connect: Connection refused".
  static Status from_errno(std::string_view call, int error_number);

  bool ok() const { return state_ == nullptr; }
  StatusCode code() const;
  /// The rank this error or the nearest of its causes is about.
  std::optional<int> peer() const;
  /// The whole chain, outermost first: "context: cause: cause of the cause". "ok" on success.
  std::string to_string() const;

  /// The same error with `context` in front: status.within("all_reduce #12"). Success stays
  /// success.
  Status within(std::string context) const;
  /// The same, but if the chain has that context already, only what is from there on: another rank
  /// that reports how an operation ended names the operation as this one does.
  Status within_once(std::string context) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Its to_string().
std::ostream& operator<<(std::ostream& out, const Status& status);

/// Thrown by throw_if_error. Its what() is the status's text.
class StatusError : public std::runtime_error {
 public:
  explicit StatusError(Status status);
  const Status& status() const { return status_; }

 private:
  Status status_;
};

/// The bridge from the Status world to the throwing one (configuration, start-up, nn).
void throw_if_error(const Status& status);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}       // NOLINT: implicit by design
  Result(Status error) : content_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return std::holds_alternative<T>(content_); }
  Status status() const { return ok() ? Status() : std::get<Status>(content_); }

  /// The value; the caller has checked ok().
  T& operator*() & { return std::get<T>(content_); }
  const T& operator*() const& { return std::get<T>(content_); }
  T&& operator*() && { return std::get<T>(std::move(content_)); }
  T* operator->() { return &std::get<T>(content_); }
  const T* operator->() const { return &std::get<T>(content_); }

  /// The value, or a StatusError.
  T value_or_throw() && {
    throw_if_error(status());
    return std::get<T>(std::move(content_));
  }

 private:
  std::variant<T, Status> content_;
};

/// Leaves the enclosing function with the error, if there is one.
#define DLAUNCH_RETURN_IF_ERROR(expression)                                    \
  do {                                                                         \
    if (::dlaunch::Status dlaunch_status = (expression); !dlaunch_status.ok()) \
      return dlaunch_status;                                                   \
  } while (false)

}  // namespace dlaunch
