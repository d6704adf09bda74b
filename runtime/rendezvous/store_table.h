// StoreTable: the keys and values of a store, and what set, add and remove mean. The server and
// MemoryStore both hold one. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"

namespace dlaunch {

class StoreTable {
 public:
  /// kInvalidArgument for a key or value out of bounds, kUnavailable if the store is full.
  Status set(std::string_view key, std::string_view value);
  /// Null if the key is not there. Valid until the table changes.
  const std::string* find(const std::string& key) const;
  /// kInvalidArgument if the key holds no number or the sum does not fit 64 bits.
  Result<std::int64_t> add(std::string_view key, std::int64_t amount);
  bool remove(std::string_view key);

  /// Those of `keys` that are not there.
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;
  /// The values of `keys`, all of which are there.
  std::vector<std::string> values(const std::vector<std::string>& keys) const;

 private:
  std::unordered_map<std::string, std::string> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace dlaunch
