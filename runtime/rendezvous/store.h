// Store: the small key-value store through which ranks, and the dlaunch processes of several nodes,
// find each other. docs/rendezvous.md has its guarantees.
//
// Hosted by dlaunch (StoreServer), reached over TCP (TcpStore); MemoryStore serves tests and worlds
// of one. All members may be called from any thread; calls of one client are carried out in order.
// Keys have 1 to 1024 bytes, values up to 16 MiB: beyond that, and for a value of the wrong kind,
// kInvalidArgument. kUnavailable if the store is full.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// What compare_and_set did.
struct StoreSwap {
  bool swapped = false;
  std::optional<std::string> value;  // what the key holds now; nothing: it is not there
};

/// A key without its value.
struct StoreEntry {
  std::string key;
  std::size_t bytes = 0;       // of the value
  std::uint64_t revision = 0;  // grows with every change in the store; this is the key's last

  friend bool operator==(const StoreEntry&, const StoreEntry&) = default;
};

/// What has become of some keys since a revision.
struct StoreChanges {
  struct Change {
    std::string key;
    std::optional<std::string> value;  // nothing: the key was removed

    friend bool operator==(const Change&, const Change&) = default;
  };
  std::uint64_t revision = 0;   // to watch from next
  std::vector<Change> changes;  // the oldest first, each key once
};

class Store {
 public:
  virtual ~Store() = default;

  /// Sets a key, whether or not it was there.
  virtual Status set(std::string_view key, std::string_view value) = 0;

  /// Waits until every key is there and returns their values in the order asked. kTimeout names the
  /// keys that are missing.
  virtual Result<std::vector<std::string>> get_all(const std::vector<std::string>& keys,
                                                   Deadline deadline) = 0;

  /// The values of those keys that are there, without waiting.
  virtual Result<std::vector<std::optional<std::string>>> try_get(
      const std::vector<std::string>& keys) = 0;

  /// Adds to a counter (0 if it is not there) and returns the new value. The value is stored as
  /// decimal text; kInvalidArgument if the key holds something else.
  virtual Result<std::int64_t> add(std::string_view key, std::int64_t amount) = 0;

  /// Sets a key if it holds `expected`; nothing expected: if it is not there.
  virtual Result<StoreSwap> compare_and_set(std::string_view key,
                                            std::optional<std::string_view> expected,
                                            std::string_view desired) = 0;

  /// Appends to a value (empty if the key is not there) and returns the bytes it has now.
  virtual Result<std::int64_t> append(std::string_view key, std::string_view bytes) = 0;

  /// Removes a key; true if it was there.
  virtual Result<bool> remove(std::string_view key) = 0;

  /// The keys that begin with `prefix`, in the order of bytes.
  virtual Result<std::vector<StoreEntry>> list(std::string_view prefix) = 0;

  /// Waits until keys that begin with `prefix` have changed after `revision` and returns how they
  /// are now. Watching from revision 0 begins with all that is there. Whoever watches again from
  /// the revision it was given sees every key's last state; of removals the store remembers the
  /// last 4096. kTimeout if nothing has changed.
  virtual Result<StoreChanges> watch(std::string_view prefix, std::uint64_t revision,
                                     Deadline deadline) = 0;

  /// get_all of one key.
  Result<std::string> get(std::string key, Deadline deadline) {
    auto values = get_all({std::move(key)}, deadline);
    if (!values.ok()) return values.status();
    return std::move(values->front());
  }
};

}  // namespace dlaunch
