// The rendezvous store's wire format: bytes to messages and back, without any I/O.
//
// A connection starts with the handshake of runtime/base/token.h: the server sends kGreeting and
// its challenge, the client its response, the server its answer (or kRefusal, and closes the
// connection). After it both sides send frames:
//
//   u32 length of the body | body = u8 code | u64 id | i64 number | u32 parts | { u32 length |
//   bytes }*
//
// Integers are little endian. `code` is an operation in a request and a StatusCode in a response; a
// response carries its request's id, and responses may come in another order than their requests.
//
//   operation        number                parts                response: number, parts
//   set              -                     key, value           -
//   get_all          microseconds to wait  keys                 -, values in the order asked
//   add              amount                key                  new value, -
//   remove           -                     key                  1 if the key was there, -
//   compare_and_set  1: with expected      key, desired,        1 if it was set,
//                                          [expected]           [the value now]
//   append           -                     key, bytes           bytes of the value now, -
//   try_get          -                     keys                 -, flags, values of those there
//   list             most entries          prefix, key to       1 if there are more,
//                                          begin after          {key, "bytes revision"}*
//   watch            microseconds to wait  prefix, revision     revision, flags, {key, [value]}*
//   set_owned        -                     key, value           -
//   stat             -                     -                    -, {name, value}*
//
// Flags are a byte for each key: '1' if it is there, '0' if not. set_owned is a set whose key is
// removed when the connection ends, unless somebody else has changed it since.
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
#include "runtime/base/token.h"
#include "runtime/rendezvous/store.h"

namespace dlaunch::store_protocol {

/// Sent first by the server. The last character is the version of all that follows.
inline constexpr std::string_view kGreeting = "dlstore2";
/// The server's answer to a client whose proof of the token does not hold: a proof of nothing.
inline constexpr Mac kRefusal{};

inline constexpr std::size_t kMostKeyBytes = 1024;
inline constexpr std::size_t kMostValueBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMostParts = std::size_t{1} << 16;
/// A compare_and_set has two values.
inline constexpr std::size_t kMostRequestBytes = 2 * kMostValueBytes + (std::size_t{64} << 10);
inline constexpr std::size_t kMostResponseBytes = std::size_t{64} << 20;
/// Everything in one store, keys and values together, with kEntryBytes more for each key.
inline constexpr std::size_t kMostStoreBytes = std::size_t{1} << 30;
inline constexpr std::size_t kEntryBytes = 128;
/// What is left of that to keys other than StoreServer::Options::limited_prefix's.
inline constexpr std::size_t kReservedBytes = std::size_t{16} << 20;
/// Requests of one connection that wait at the same time, and their bytes.
inline constexpr std::size_t kMostWaits = 4096;
inline constexpr std::size_t kMostWaitingBytes = std::size_t{64} << 20;
/// Entries in one answer to list or watch, and bytes after which it is long enough.
inline constexpr std::size_t kMostEntries = 4096;
inline constexpr std::size_t kEnoughEntryBytes = std::size_t{16} << 20;

/// The numbers are part of the wire format: never renumber.
enum class Operation : std::uint8_t {
  kSet = 1,
  kGetAll = 2,
  kAdd = 3,
  kRemove = 4,
  kCompareAndSet = 5,
  kAppend = 6,
  kTryGet = 7,
  kList = 8,
  kWatch = 9,
  kSetOwned = 10,
  kStat = 11,
};

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
Status check_value(std::string_view key, std::size_t bytes);
/// The revision in a watch's request. kInvalidArgument if there is none.
Result<std::uint64_t> parse_revision(std::string_view text);

// The bodies of the responses that have more than a number, and their reading, which is kProtocol
// for anything else. `count` is the number of keys asked for.
Message try_get_response(std::uint64_t id, std::vector<std::optional<std::string>> values);
Result<std::vector<std::optional<std::string>>> read_try_get(Message response, std::size_t count);
Message list_response(std::uint64_t id, const std::vector<StoreEntry>& entries, bool more);
Result<std::vector<StoreEntry>> read_list(Message response);
Message watch_response(std::uint64_t id, StoreChanges changes);
Result<StoreChanges> read_watch(Message response);

Message error_response(std::uint64_t id, const Status& status);
/// The status that a response stands for: ok, or the error with its text.
Status response_status(const Message& response);

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
