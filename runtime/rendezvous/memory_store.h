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
  Result<std::vector<std::optional<std::string>>> try_get(
      const std::vector<std::string>& keys) override;
  Result<std::int64_t> add(std::string_view key, std::int64_t amount) override;
  Result<StoreSwap> compare_and_set(std::string_view key, std::optional<std::string_view> expected,
                                    std::string_view desired) override;
  Result<std::int64_t> append(std::string_view key, std::string_view bytes) override;
  Result<bool> remove(std::string_view key) override;
  Result<std::vector<StoreEntry>> list(std::string_view prefix) override;
  Result<StoreChanges> watch(std::string_view prefix, std::uint64_t revision,
                             Deadline deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreTable table_;
};

}  // namespace dlaunch
