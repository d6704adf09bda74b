// StoreTable: the keys and values of a store, and what each operation means. The server and
// MemoryStore both hold one. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/rendezvous/store.h"
#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {

class StoreTable {
 public:
  /// `limited_prefix`: as of StoreServer.
  explicit StoreTable(std::size_t most_bytes = store_protocol::kMostStoreBytes,
                      std::string limited_prefix = "")
      : most_bytes_(most_bytes), limited_prefix_(std::move(limited_prefix)) {}

  /// kInvalidArgument for a key or value out of bounds, kUnavailable if the store is full.
  Status set(std::string_view key, std::string_view value);
  /// kInvalidArgument if the key holds no number or the sum does not fit 64 bits.
  Result<std::int64_t> add(std::string_view key, std::int64_t amount);
  Result<StoreSwap> compare_and_set(std::string_view key, std::optional<std::string_view> expected,
                                    std::string_view desired);
  /// The bytes of the value then.
  Result<std::int64_t> append(std::string_view key, std::string_view bytes);
  bool remove(std::string_view key);

  /// Null if the key is not there. Valid until the table changes.
  const std::string* find(std::string_view key) const;
  /// Those of `keys` that are not there.
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;
  /// The values of `keys`, all of which are there.
  std::vector<std::string> values(const std::vector<std::string>& keys) const;
  std::vector<std::optional<std::string>> values_there(const std::vector<std::string>& keys) const;

  /// At most `most` keys that begin with `prefix` and come after `after`, in order.
  std::vector<StoreEntry> list(std::string_view prefix, std::string_view after,
                               std::size_t most) const;
  /// What has changed after `revision` under `prefix`, oldest first: as much as fits the protocol's
  /// limits for one answer; its revision is that of the last change in it.
  StoreChanges changes(std::string_view prefix, std::uint64_t revision) const;

  std::uint64_t revision() const { return revision_; }
  std::size_t size() const { return entries_.size(); }
  /// As counted against the limit.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string value;
    std::uint64_t revision;
  };

  bool has_room(std::string_view key, std::size_t bytes) const;
  Status full(std::string_view key) const;
  void forget_removal(std::string_view key);

  const std::size_t most_bytes_;
  const std::string limited_prefix_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::size_t bytes_ = 0;
  std::uint64_t revision_ = 0;
  // The keys removed last, with their revisions; and the same in the order of time, in which some
  // may be outdated.
  std::map<std::string, std::uint64_t, std::less<>> removed_;
  std::deque<std::pair<std::uint64_t, std::string>> removals_;
};

}  // namespace dlaunch
