#include "runtime/rendezvous/store_table.h"

#include <charconv>

#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {

Status StoreTable::set(std::string_view key, std::string_view value) {
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_key(key));
  if (value.size() > store_protocol::kMostValueBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "store: the value of '" + std::string(key) + "' has " +
                      std::to_string(value.size()) + " bytes, at most " +
                      std::to_string(store_protocol::kMostValueBytes) + " are allowed");
  }
  const auto found = entries_.find(std::string(key));
  const std::size_t freed = found == entries_.end() ? 0 : key.size() + found->second.size();
  if (bytes_ - freed + key.size() + value.size() > store_protocol::kMostStoreBytes) {
    return Status(StatusCode::kUnavailable, "store: full, no room for '" + std::string(key) + "'");
  }
  bytes_ += key.size() + value.size() - freed;
  if (found == entries_.end()) {
    entries_.emplace(key, value);
  } else {
    found->second = value;
  }
  return {};
}

const std::string* StoreTable::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

Result<std::int64_t> StoreTable::add(std::string_view key, std::int64_t amount) {
  std::int64_t sum = 0;
  if (const std::string* text = find(std::string(key))) {
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, sum);
    if (error != std::errc() || stop != end) {
      return Status(StatusCode::kInvalidArgument,
                    "store: '" + std::string(key) + "' holds no number to add to");
    }
  }
  if (__builtin_add_overflow(sum, amount, &sum)) {
    return Status(StatusCode::kInvalidArgument,
                  "store: '" + std::string(key) + "' would leave the range of 64 bits");
  }
  DLAUNCH_RETURN_IF_ERROR(set(key, std::to_string(sum)));
  return sum;
}

bool StoreTable::remove(std::string_view key) {
  const auto found = entries_.find(std::string(key));
  if (found == entries_.end()) return false;
  bytes_ -= found->first.size() + found->second.size();
  entries_.erase(found);
  return true;
}

std::vector<std::string> StoreTable::missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> absent;
  for (const std::string& key : keys) {
    if (find(key) == nullptr) absent.push_back(key);
  }
  return absent;
}

std::vector<std::string> StoreTable::values(const std::vector<std::string>& keys) const {
  std::vector<std::string> found;
  found.reserve(keys.size());
  for (const std::string& key : keys) found.push_back(entries_.at(key));
  return found;
}

}  // namespace dlaunch
