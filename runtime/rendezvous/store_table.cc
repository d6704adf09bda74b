#include "runtime/rendezvous/store_table.h"

#include <algorithm>
#include <charconv>

namespace dlaunch {

using store_protocol::kEntryBytes;

namespace {

constexpr std::size_t kMostRemovals = 4096;

Status invalid(std::string_view key, const char* why) {
  return Status(StatusCode::kInvalidArgument, "store: '" + std::string(key) + "' " + why);
}

}  // namespace

// For as many bytes in all.
bool StoreTable::has_room(std::string_view key, std::size_t bytes) const {
  const bool limited = !limited_prefix_.empty() && key.starts_with(limited_prefix_);
  const std::size_t left = limited ? std::min(store_protocol::kReservedBytes, most_bytes_ / 2) : 0;
  return bytes <= most_bytes_ - left;
}

Status StoreTable::full(std::string_view key) const {
  return Status(StatusCode::kUnavailable, "store: full (" + std::to_string(most_bytes_) +
                                              " bytes), no room for '" + std::string(key) + "'");
}

Status StoreTable::set(std::string_view key, std::string_view value) {
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_key(key));
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_value(key, value.size()));
  const auto found = entries_.lower_bound(key);
  const bool there = found != entries_.end() && found->first == key;
  const std::size_t freed = there ? found->second.value.size() : 0;
  const std::size_t added = value.size() + (there ? 0 : key.size() + kEntryBytes);
  if (added > freed && !has_room(key, bytes_ - freed + added)) return full(key);
  if (there) {
    found->second.value = value;
    found->second.revision = ++revision_;
  } else {
    entries_.emplace_hint(found, key, Entry{std::string(value), ++revision_});
    forget_removal(key);
  }
  bytes_ += added - freed;
  return {};
}

Result<std::int64_t> StoreTable::add(std::string_view key, std::int64_t amount) {
  std::int64_t sum = 0;
  if (const std::string* text = find(key)) {
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, sum);
    if (error != std::errc() || stop != end) return invalid(key, "holds no number to add to");
  }
  if (__builtin_add_overflow(sum, amount, &sum)) {
    return invalid(key, "would leave the range of 64 bits");
  }
  DLAUNCH_RETURN_IF_ERROR(set(key, std::to_string(sum)));
  return sum;
}

Result<StoreSwap> StoreTable::compare_and_set(std::string_view key,
                                              std::optional<std::string_view> expected,
                                              std::string_view desired) {
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_key(key));
  const std::string* now = find(key);
  const bool equal = now == nullptr ? !expected : expected && *expected == *now;
  if (!equal) {
    return StoreSwap{false, now == nullptr ? std::nullopt : std::optional<std::string>(*now)};
  }
  DLAUNCH_RETURN_IF_ERROR(set(key, desired));
  return StoreSwap{true, std::string(desired)};
}

Result<std::int64_t> StoreTable::append(std::string_view key, std::string_view bytes) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    DLAUNCH_RETURN_IF_ERROR(set(key, bytes));
    return static_cast<std::int64_t>(bytes.size());
  }
  std::string& value = found->second.value;
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_value(key, value.size() + bytes.size()));
  if (!bytes.empty() && !has_room(key, bytes_ + bytes.size())) return full(key);
  value += bytes;
  bytes_ += bytes.size();
  found->second.revision = ++revision_;
  return static_cast<std::int64_t>(value.size());
}

bool StoreTable::remove(std::string_view key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  ++revision_;
  removals_.emplace_back(revision_, found->first);
  removed_[found->first] = revision_;
  bytes_ -= found->first.size() + found->second.value.size() + kEntryBytes;
  entries_.erase(found);
  if (removals_.size() > kMostRemovals) {
    const auto& [when, oldest] = removals_.front();
    const auto known = removed_.find(oldest);
    if (known != removed_.end() && known->second == when) removed_.erase(known);
    removals_.pop_front();
  }
  return true;
}

void StoreTable::forget_removal(std::string_view key) {
  const auto found = removed_.find(key);
  if (found != removed_.end()) removed_.erase(found);
}

const std::string* StoreTable::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.value;
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
  for (const std::string& key : keys) found.push_back(*find(key));
  return found;
}

std::vector<std::optional<std::string>> StoreTable::values_there(
    const std::vector<std::string>& keys) const {
  std::vector<std::optional<std::string>> found;
  found.reserve(keys.size());
  for (const std::string& key : keys) {
    const std::string* value = find(key);
    found.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(*value));
  }
  return found;
}

std::vector<StoreEntry> StoreTable::list(std::string_view prefix, std::string_view after,
                                         std::size_t most) const {
  std::vector<StoreEntry> listed;
  std::size_t bytes = 0;
  auto each = after < prefix ? entries_.lower_bound(prefix) : entries_.upper_bound(after);
  for (; each != entries_.end() && each->first.starts_with(prefix); ++each) {
    if (listed.size() == most || bytes > store_protocol::kEnoughEntryBytes) break;
    listed.push_back({each->first, each->second.value.size(), each->second.revision});
    bytes += each->first.size();
  }
  return listed;
}

StoreChanges StoreTable::changes(std::string_view prefix, std::uint64_t revision) const {
  struct Found {
    std::uint64_t revision;
    const std::string* key;
    const std::string* value;
  };
  std::vector<Found> found;
  for (auto each = entries_.lower_bound(prefix);
       each != entries_.end() && each->first.starts_with(prefix); ++each) {
    if (each->second.revision > revision) {
      found.push_back({each->second.revision, &each->first, &each->second.value});
    }
  }
  for (auto each = removed_.lower_bound(prefix);
       each != removed_.end() && each->first.starts_with(prefix); ++each) {
    if (each->second > revision) found.push_back({each->second, &each->first, nullptr});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.revision < b.revision; });
  StoreChanges changes{.revision = revision};
  std::size_t bytes = 0;
  for (const Found& each : found) {
    if (changes.changes.size() == store_protocol::kMostEntries ||
        bytes > store_protocol::kEnoughEntryBytes) {
      return changes;  // the rest comes with the next watch
    }
    changes.revision = each.revision;
    changes.changes.push_back(
        {*each.key, each.value == nullptr ? std::nullopt : std::optional(*each.value)});
    bytes += each.key->size() + (each.value == nullptr ? 0 : each.value->size());
  }
  changes.revision = std::max(revision, revision_);
  return changes;
}

}  // namespace dlaunch
