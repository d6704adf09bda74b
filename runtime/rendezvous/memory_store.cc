#include "runtime/rendezvous/memory_store.h"

#include <utility>

#include "runtime/rendezvous/missing_keys.h"
#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {
namespace {

Status check_keys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) DLAUNCH_RETURN_IF_ERROR(store_protocol::check_key(key));
  return {};
}

}  // namespace

Status MemoryStore::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  DLAUNCH_RETURN_IF_ERROR(table_.set(key, value));
  changed_.notify_all();
  return {};
}

Result<std::vector<std::string>> MemoryStore::get_all(const std::vector<std::string>& keys,
                                                      Deadline deadline) {
  DLAUNCH_RETURN_IF_ERROR(check_keys(keys));
  std::unique_lock lock(mutex_);
  while (true) {
    const auto missing = table_.missing(keys);
    if (missing.empty()) return table_.values(keys);
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout, "store: " + describe_missing(missing));
    }
    changed_.wait_until(lock, deadline.when());
  }
}

Result<std::vector<std::optional<std::string>>> MemoryStore::try_get(
    const std::vector<std::string>& keys) {
  DLAUNCH_RETURN_IF_ERROR(check_keys(keys));
  const std::lock_guard lock(mutex_);
  return table_.values_there(keys);
}

Result<std::int64_t> MemoryStore::add(std::string_view key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  auto sum = table_.add(key, amount);
  if (sum.ok()) changed_.notify_all();
  return sum;
}

Result<StoreSwap> MemoryStore::compare_and_set(std::string_view key,
                                               std::optional<std::string_view> expected,
                                               std::string_view desired) {
  const std::lock_guard lock(mutex_);
  auto swap = table_.compare_and_set(key, expected, desired);
  if (swap.ok()) changed_.notify_all();
  return swap;
}

Result<std::int64_t> MemoryStore::append(std::string_view key, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  auto size = table_.append(key, bytes);
  if (size.ok()) changed_.notify_all();
  return size;
}

Result<bool> MemoryStore::remove(std::string_view key) {
  const std::lock_guard lock(mutex_);
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_key(key));
  const bool removed = table_.remove(key);
  if (removed) changed_.notify_all();
  return removed;
}

Result<std::vector<StoreEntry>> MemoryStore::list(std::string_view prefix) {
  const std::lock_guard lock(mutex_);
  auto all = table_.list(prefix, "", store_protocol::kMostEntries);
  for (std::size_t before = 0; before < all.size();) {
    before = all.size();
    for (StoreEntry& entry : table_.list(prefix, all.back().key, store_protocol::kMostEntries)) {
      all.push_back(std::move(entry));
    }
  }
  return all;
}

Result<StoreChanges> MemoryStore::watch(std::string_view prefix, std::uint64_t revision,
                                        Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (true) {
    auto changes = table_.changes(prefix, revision);
    if (!changes.changes.empty()) return changes;
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout, "store: " + describe_unchanged(prefix));
    }
    changed_.wait_until(lock, deadline.when());
  }
}

}  // namespace dlaunch
