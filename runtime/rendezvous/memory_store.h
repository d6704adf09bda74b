// MemoryStore: a Store within one process, for tests and for ranks that are threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/rendezvous/store.h"
#include "runtime/rendezvous/store_table.h"

namespace dlaunch {

class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::string_view value) override;
  Result<std::vector<std::string>> get_all(const std::vector<std::string>& keys,
                                           Deadline deadline) override;
  Result<std::int64_t> add(std::string_view key, std::int64_t amount) override;
  Result<bool> remove(std::string_view key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreTable table_;
};

}  // namespace dlaunch
