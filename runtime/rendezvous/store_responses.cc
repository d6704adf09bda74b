// The responses of the store's wire format that have more than a number.
#include <charconv>
#include <utility>

#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch::store_protocol {
namespace {

Status malformed(const char* what) {
  return Status(StatusCode::kProtocol, std::string("malformed store response: ") + what);
}

bool are_flags(std::string_view flags) {
  return flags.find_first_not_of("01") == std::string_view::npos;
}

std::size_t count_set(std::string_view flags) {
  std::size_t count = 0;
  for (const char flag : flags) count += flag == '1' ? 1 : 0;
  return count;
}

// "bytes revision"
bool parse_entry(std::string_view text, StoreEntry& entry) {
  const char* end = text.data() + text.size();
  const auto bytes = std::from_chars(text.data(), end, entry.bytes);
  if (bytes.ec != std::errc() || bytes.ptr == end || *bytes.ptr != ' ') return false;
  const auto revision = std::from_chars(bytes.ptr + 1, end, entry.revision);
  return revision.ec == std::errc() && revision.ptr == end;
}

}  // namespace

Message try_get_response(std::uint64_t id, std::vector<std::optional<std::string>> values) {
  Message response{.id = id, .parts = {std::string()}};
  for (auto& value : values) {
    response.parts[0] += value ? '1' : '0';
    if (value) response.parts.push_back(*std::move(value));
  }
  return response;
}

Result<std::vector<std::optional<std::string>>> read_try_get(Message response, std::size_t count) {
  if (response.parts.empty()) return malformed("no flags");
  const std::string flags = std::move(response.parts[0]);
  if (flags.size() != count || !are_flags(flags)) return malformed("flags");
  if (response.parts.size() != 1 + count_set(flags)) return malformed("wrong number of values");
  std::vector<std::optional<std::string>> values;
  std::size_t next = 1;
  for (const char flag : flags) {
    values.emplace_back();
    if (flag == '1') values.back() = std::move(response.parts[next++]);
  }
  return values;
}

Message list_response(std::uint64_t id, const std::vector<StoreEntry>& entries, bool more) {
  Message response{.id = id, .number = more ? 1 : 0};
  for (const StoreEntry& entry : entries) {
    response.parts.push_back(entry.key);
    response.parts.push_back(std::to_string(entry.bytes) + " " + std::to_string(entry.revision));
  }
  return response;
}

Result<std::vector<StoreEntry>> read_list(Message response) {
  if (response.parts.size() % 2 != 0) return malformed("half an entry");
  std::vector<StoreEntry> entries;
  for (std::size_t i = 0; i < response.parts.size(); i += 2) {
    entries.push_back({.key = std::move(response.parts[i])});
    if (!parse_entry(response.parts[i + 1], entries.back())) return malformed("an entry's numbers");
  }
  return entries;
}

Message watch_response(std::uint64_t id, StoreChanges changes) {
  Message response{
      .id = id, .number = static_cast<std::int64_t>(changes.revision), .parts = {std::string()}};
  for (auto& change : changes.changes) {
    response.parts[0] += change.value ? '1' : '0';
    response.parts.push_back(std::move(change.key));
    if (change.value) response.parts.push_back(*std::move(change.value));
  }
  return response;
}

Result<StoreChanges> read_watch(Message response) {
  if (response.parts.empty()) return malformed("no flags");
  const std::string flags = std::move(response.parts[0]);
  if (!are_flags(flags) || response.parts.size() != 1 + flags.size() + count_set(flags)) {
    return malformed("flags");
  }
  StoreChanges read{.revision = static_cast<std::uint64_t>(response.number)};
  std::size_t next = 1;
  for (const char flag : flags) {
    read.changes.push_back({.key = std::move(response.parts[next++])});
    if (flag == '1') read.changes.back().value = std::move(response.parts[next++]);
  }
  return read;
}

}  // namespace dlaunch::store_protocol
