// Store: the small key-value store through which ranks find each other.
//
// Hosted by dlaunch (StoreServer), reached over TCP (TcpStore); MemoryStore serves tests and worlds
// of one. All members may be called from any thread; calls of one client are answered in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

class Store {
 public:
  virtual ~Store() = default;

  /// Sets a key, whether or not it was there. kInvalidArgument for keys above 1 KiB or values above
  /// 16 MiB.
  virtual Status set(std::string_view key, std::string_view value) = 0;

  /// Waits until every key is there and returns their values in the order asked. kTimeout names the
  /// keys that are missing.
  virtual Result<std::vector<std::string>> get_all(const std::vector<std::string>& keys,
                                                   Deadline deadline) = 0;

  /// Adds to a counter (0 if it is not there) and returns the new value. The value is stored as
  /// decimal text; kInvalidArgument if the key holds something else.
  virtual Result<std::int64_t> add(std::string_view key, std::int64_t amount) = 0;

  /// Removes a key; true if it was there.
  virtual Result<bool> remove(std::string_view key) = 0;

  /// get_all of one key.
  Result<std::string> get(std::string key, Deadline deadline) {
    auto values = get_all({std::move(key)}, deadline);
    if (!values.ok()) return values.status();
    return std::move(values->front());
  }
};

}  // namespace dlaunch
