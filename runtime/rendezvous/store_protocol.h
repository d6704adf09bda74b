// The rendezvous store's wire format: bytes to messages and back, without any I/O.
//
// A connection starts with the handshake of runtime/base/token.h: the server sends kGreeting and
// its challenge, the client its response, the server its answer. After it both sides send frames:
//
//   u32 length of the body | body = u8 code | u64 id | i64 number | u32 parts | { u32 length |
//   bytes }*
//
// Integers are little endian. `code` is an operation in a request and a StatusCode in a response; a
// response carries its request's id, and responses may come in another order than their requests.
//
//   operation   number                      parts           response: number, parts
//   set         -                           key, value      -
//   get_all     microseconds to wait        keys            -, values in the order asked
//   add         amount                      key             new value, -
//   remove      -                           key             1 if the key was there, -
//
// An error response has its text as only part. Nothing from outside is believed: every length and
// every field is checked against the limits below before memory is set aside for it.
//
// Pure functions and values; any thread may use them, one object by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace dlaunch::store_protocol {

/// Sent first by the server. The last character is the version of all that follows.
inline constexpr std::string_view kGreeting = "dlstore1";

inline constexpr std::size_t kMostKeyBytes = 1024;
inline constexpr std::size_t kMostValueBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMostParts = std::size_t{1} << 16;
inline constexpr std::size_t kMostRequestBytes = kMostValueBytes + (std::size_t{64} << 10);
inline constexpr std::size_t kMostResponseBytes = std::size_t{64} << 20;
/// Everything in one store, keys and values together.
inline constexpr std::size_t kMostStoreBytes = std::size_t{1} << 30;

/// The numbers are part of the wire format: never renumber.
enum class Operation : std::uint8_t { kSet = 1, kGetAll = 2, kAdd = 3, kRemove = 4 };

struct Message {
  std::uint8_t code = 0;
  std::uint64_t id = 0;
  std::int64_t number = 0;
  std::vector<std::string> parts;

  friend bool operator==(const Message&, const Message&) = default;
};

/// Bytes that `message` has in a frame's body.
std::size_t body_bytes(const Message& message);
/// Appends the frame, length included.
void append_frame(std::string& out, const Message& message);
/// The inverse, of a frame's body. kProtocol for anything that append_frame does not write.
Result<Message> decode_body(std::string_view body);

/// kInvalidArgument unless this is a request that a server may carry out.
Status check_request(const Message& request);
Status check_key(std::string_view key);

Message error_response(std::uint64_t id, const Status& status);
/// The status that a response stands for: ok, or the error with its text.
Status response_status(const Message& response);

/// "no value for 'a', 'b' and 3 more keys".
std::string describe_missing(const std::vector<std::string>& missing);

/// Cuts a stream of bytes into frames.
class FrameBuffer {
 public:
  explicit FrameBuffer(std::size_t most_body_bytes) : most_body_bytes_(most_body_bytes) {}

  void append(std::string_view bytes);
  /// The next frame's body, valid until append() is called again; nothing if bytes are missing;
  /// kProtocol if a frame is longer than allowed.
  Result<std::optional<std::string_view>> next();

 private:
  std::size_t most_body_bytes_;
  std::string bytes_;
  std::size_t consumed_ = 0;
};

}  // namespace dlaunch::store_protocol
