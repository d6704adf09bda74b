#include "runtime/rendezvous/memory_store.h"

#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {

Status MemoryStore::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  DLAUNCH_RETURN_IF_ERROR(table_.set(key, value));
  changed_.notify_all();
  return {};
}

Result<std::vector<std::string>> MemoryStore::get_all(const std::vector<std::string>& keys,
                                                      Deadline deadline) {
  for (const std::string& key : keys) DLAUNCH_RETURN_IF_ERROR(store_protocol::check_key(key));
  std::unique_lock lock(mutex_);
  while (true) {
    const auto missing = table_.missing(keys);
    if (missing.empty()) return table_.values(keys);
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout, "store: " + store_protocol::describe_missing(missing));
    }
    changed_.wait_until(lock, deadline.when());
  }
}

Result<std::int64_t> MemoryStore::add(std::string_view key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  auto sum = table_.add(key, amount);
  if (sum.ok()) changed_.notify_all();
  return sum;
}

Result<bool> MemoryStore::remove(std::string_view key) {
  const std::lock_guard lock(mutex_);
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_key(key));
  return table_.remove(key);
}

}  // namespace dlaunch
