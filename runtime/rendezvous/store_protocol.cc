#include "runtime/rendezvous/store_protocol.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace dlaunch::store_protocol {
namespace {

static_assert(std::endian::native == std::endian::little, "the store writes little endian");

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 20;
constexpr std::size_t kFixedBytes =
    sizeof(std::uint8_t) + sizeof(std::uint64_t) + sizeof(std::int64_t) + sizeof(std::uint32_t);

template <typename Integer>
void append_integer(std::string& out, Integer value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out.append(bytes, sizeof(value));
}

// Takes an integer from the front of `bytes`; false if they are too few.
template <typename Integer>
bool take_integer(std::string_view& bytes, Integer& value) {
  if (bytes.size() < sizeof(value)) return false;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return true;
}

Status malformed(const std::string& what) {
  return Status(StatusCode::kProtocol, "malformed store message: " + what);
}

Status invalid(std::string what) {
  return Status(StatusCode::kInvalidArgument, "store: " + std::move(what));
}

}  // namespace

std::size_t body_bytes(const Message& message) {
  std::size_t bytes = kFixedBytes;
  for (const std::string& part : message.parts) bytes += kLengthBytes + part.size();
  return bytes;
}

void append_frame(std::string& out, const Message& message) {
  const std::size_t bytes = body_bytes(message);
  out.reserve(out.size() + kLengthBytes + bytes);
  append_integer(out, static_cast<std::uint32_t>(bytes));
  append_integer(out, message.code);
  append_integer(out, message.id);
  append_integer(out, message.number);
  append_integer(out, static_cast<std::uint32_t>(message.parts.size()));
  for (const std::string& part : message.parts) {
    append_integer(out, static_cast<std::uint32_t>(part.size()));
    out += part;
  }
}

Result<Message> decode_body(std::string_view body) {
  Message message;
  std::uint32_t parts = 0;
  if (!take_integer(body, message.code) || !take_integer(body, message.id) ||
      !take_integer(body, message.number) || !take_integer(body, parts)) {
    return malformed("shorter than its fixed fields");
  }
  // Each part has at least its length, so a count that the bytes cannot hold is refused before
  // memory is set aside for it.
  if (parts > kMostParts || parts > body.size() / kLengthBytes) return malformed("too many parts");
  message.parts.reserve(parts);
  for (std::uint32_t i = 0; i < parts; ++i) {
    std::uint32_t length = 0;
    if (!take_integer(body, length) || length > body.size()) return malformed("a part is cut off");
    message.parts.emplace_back(body.substr(0, length));
    body.remove_prefix(length);
  }
  if (!body.empty()) return malformed("bytes after its end");
  return message;
}

Status check_key(std::string_view key) {
  if (!key.empty() && key.size() <= kMostKeyBytes) return {};
  return invalid("a key has 1 to " + std::to_string(kMostKeyBytes) + " bytes, this one " +
                 std::to_string(key.size()));
}

Status check_value(std::string_view key, std::size_t bytes) {
  if (bytes <= kMostValueBytes) return {};
  return invalid("the value of '" + std::string(key) + "' has " + std::to_string(bytes) +
                 " bytes, at most " + std::to_string(kMostValueBytes) + " are allowed");
}

Result<std::uint64_t> parse_revision(std::string_view text) {
  std::uint64_t revision = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, revision);
  if (error != std::errc() || stop != end) return invalid("a watch without a revision");
  return revision;
}

namespace {

Status check_prefix(std::string_view prefix) {
  if (prefix.size() <= kMostKeyBytes) return {};
  return invalid("a prefix has at most " + std::to_string(kMostKeyBytes) + " bytes, this one " +
                 std::to_string(prefix.size()));
}

Status expect_parts(const Message& request, std::size_t count) {
  if (request.parts.size() == count) return {};
  return invalid("operation " + std::to_string(request.code) + " with " +
                 std::to_string(request.parts.size()) + " parts");
}

Status check_keys(const Message& request) {
  if (request.parts.size() > kMostParts - 1) return invalid("more than 65535 keys at once");
  for (const std::string& key : request.parts) DLAUNCH_RETURN_IF_ERROR(check_key(key));
  return {};
}

Status check_pair(const Message& request) {
  DLAUNCH_RETURN_IF_ERROR(check_key(request.parts[0]));
  return check_value(request.parts[0], request.parts[1].size());
}

}  // namespace

Status check_request(const Message& request) {
  switch (static_cast<Operation>(request.code)) {
    case Operation::kSet:
    case Operation::kSetOwned:
    case Operation::kAppend:
      DLAUNCH_RETURN_IF_ERROR(expect_parts(request, 2));
      return check_pair(request);
    case Operation::kCompareAndSet:
      if (request.number != 0 && request.number != 1) return invalid("neither with nor without");
      DLAUNCH_RETURN_IF_ERROR(expect_parts(request, request.number == 1 ? 3 : 2));
      return check_pair(request);
    case Operation::kGetAll:
      if (request.number < 0) return invalid("a negative time to wait");
      return check_keys(request);
    case Operation::kTryGet:
      return check_keys(request);
    case Operation::kAdd:
    case Operation::kRemove:
      DLAUNCH_RETURN_IF_ERROR(expect_parts(request, 1));
      return check_key(request.parts[0]);
    case Operation::kList:
      DLAUNCH_RETURN_IF_ERROR(expect_parts(request, 2));
      if (request.number < 1) return invalid("a list of no entries");
      DLAUNCH_RETURN_IF_ERROR(check_prefix(request.parts[0]));
      return check_prefix(request.parts[1]);
    case Operation::kWatch:
      DLAUNCH_RETURN_IF_ERROR(expect_parts(request, 2));
      if (request.number < 0) return invalid("a negative time to wait");
      DLAUNCH_RETURN_IF_ERROR(parse_revision(request.parts[1]).status());
      return check_prefix(request.parts[0]);
    case Operation::kStat:
      return expect_parts(request, 0);
  }
  return invalid("unknown operation " + std::to_string(request.code) +
                 "; is the client newer than dlaunch?");
}

Message error_response(std::uint64_t id, const Status& status) {
  return {
      .code = static_cast<std::uint8_t>(status.code()), .id = id, .parts = {status.to_string()}};
}

Status response_status(const Message& response) {
  const auto code = static_cast<StatusCode>(response.code);
  if (code == StatusCode::kOk) return {};
  if (code > StatusCode::kIo || response.parts.size() != 1) {
    return malformed("a response with an unknown status");
  }
  return Status(code, response.parts[0]);
}

void FrameBuffer::append(std::string_view bytes) {
  bytes_.erase(0, consumed_);
  consumed_ = 0;
  // One large message does not hold its memory for good.
  if (bytes_.empty() && bytes_.capacity() > kMostKeptBytes) bytes_.shrink_to_fit();
  bytes_ += bytes;
}

Result<std::optional<std::string_view>> FrameBuffer::next() {
  std::string_view rest = std::string_view(bytes_).substr(consumed_);
  std::uint32_t length = 0;
  if (!take_integer(rest, length)) return std::optional<std::string_view>();
  if (length > most_body_bytes_) {
    return malformed("longer than the limit");
  }
  if (rest.size() < length) return std::optional<std::string_view>();
  consumed_ += kLengthBytes + length;
  return std::optional(rest.substr(0, length));
}

}  // namespace dlaunch::store_protocol
