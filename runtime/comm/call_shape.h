// CallShape: what the plan of a call depends on. ShapeCache: what was made for a shape, found once
// and kept.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/comm/call_signature.h"
#include "runtime/comm/collective_call.h"

namespace dlaunch {

struct CallShape {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Algorithm algorithm = Algorithm::kAuto;  // as asked for
  ReduceOrder order = ReduceOrder::kAny;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;
  int root = -1;
  std::size_t count = 0;    // total_count(): elements, or records
  std::size_t element = 0;  // bytes

  static CallShape of(const CollectiveCall& call, int world) {
    return {.kind = call.kind,
            .algorithm = call.algorithm,
            .order = call.order,
            .op = op_of_call(call),
            .dtype = dtype_of_call(call),
            .root = call.root,
            .count = total_count(call, world),
            .element = element_bytes(call)};
  }

  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// Holds the values of up to 256 shapes, those used last, and of fewer where they take more than 32
/// MiB together (Value::bytes()): the plan of a vector of gigabytes among hundreds of ranks takes
/// megabytes. One thread at a time.
template <typename Value>
class ShapeCache {
 public:
  /// The value for `call`, whose shape is `shape`; made by make() if it is not there. Good until
  /// the next call.
  template <typename Make>
  const Value& get(const CallShape& shape, const CollectiveCall& call, const Make& make) {
    // Calls of one shape come in a row.
    if (newest_ < entries_.size() && matches(newest_, shape, call)) return entries_[newest_].value;
    const std::uint64_t key = key_of(shape, call);
    const std::size_t found = find(key, shape, call);
    if (found == entries_.size()) {
      newest_ = add({.shape = shape,
                     .counts = {call.counts.begin(), call.counts.end()},
                     .recv_counts = {call.recv_counts.begin(), call.recv_counts.end()},
                     .value = make()});
      keys_[newest_] = key;
    } else {
      newest_ = found;
    }
    used_[newest_] = ++uses_;
    return entries_[newest_].value;
  }

 private:
  static constexpr std::size_t kMostEntries = 256;
  static constexpr std::size_t kMostBytes = std::size_t{32} << 20;

  struct Entry {
    CallShape shape;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> recv_counts;
    Value value;
    std::size_t bytes = value.bytes();
  };

  static std::uint64_t key_of(const CallShape& shape, const CollectiveCall& call) {
    std::uint64_t key = shape.count;
    const auto mix = [&key](std::uint64_t next) { key = key * 0x9e3779b97f4a7c15 + next; };
    mix(static_cast<std::uint64_t>(shape.kind));
    mix(static_cast<std::uint64_t>(shape.dtype));
    mix(static_cast<std::uint64_t>(shape.root));
    for (const std::size_t count : call.counts) mix(count);
    return key;
  }

  bool matches(std::size_t index, const CallShape& shape, const CollectiveCall& call) const {
    const Entry& entry = entries_[index];
    return entry.shape == shape && std::ranges::equal(entry.counts, call.counts) &&
           std::ranges::equal(entry.recv_counts, call.recv_counts);
  }

  // Begins behind the one used last: shapes that take turns are found at once.
  std::size_t find(std::uint64_t key, const CallShape& shape, const CollectiveCall& call) const {
    const std::size_t size = entries_.size();
    for (std::size_t i = 1; i <= size; ++i) {
      const std::size_t at = newest_ + i < size ? newest_ + i : newest_ + i - size;
      if (keys_[at] == key && matches(at, shape, call)) return at;
    }
    return size;
  }

  std::size_t add(Entry entry) {
    while (!entries_.empty() &&
           (entries_.size() == kMostEntries || bytes_ + entry.bytes > kMostBytes))
      remove_oldest();
    bytes_ += entry.bytes;
    entries_.push_back(std::move(entry));
    return entries_.size() - 1;
  }

  // The one that was not used for the longest time; the last takes its place.
  void remove_oldest() {
    const auto uses = std::span(used_).first(entries_.size());
    const auto at = static_cast<std::size_t>(std::ranges::min_element(uses) - uses.begin());
    const std::size_t last = entries_.size() - 1;
    bytes_ -= entries_[at].bytes;
    if (at != last) entries_[at] = std::move(entries_[last]);
    keys_[at] = keys_[last];
    used_[at] = used_[last];
    entries_.pop_back();
  }

  std::vector<Entry> entries_;
  std::array<std::uint64_t, kMostEntries> keys_{};  // of the entries; most searches need no more
  std::array<std::uint64_t, kMostEntries> used_{};  // the use that was each one's last
  std::uint64_t uses_ = 0;
  std::size_t bytes_ = 0;   // of all values
  std::size_t newest_ = 0;  // the entry used last
};

}  // namespace dlaunch
