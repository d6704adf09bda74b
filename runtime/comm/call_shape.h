// CallShape: what the plan of a call depends on. ShapeCache: what was made for a shape, found once
// and kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/comm/call_signature.h"
#include "runtime/comm/collective_call.h"

namespace dlaunch {

struct CallShape {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Algorithm algorithm = Algorithm::kAuto;  // as asked for
  ReduceOrder order = ReduceOrder::kAny;
  DType dtype = DType::kF32;
  int root = -1;
  std::size_t count = 0;    // total_count(): elements, or records
  std::size_t element = 0;  // bytes

  static CallShape of(const CollectiveCall& call, int world) {
    return {call.kind, call.algorithm,           call.order,         dtype_of_call(call),
            call.root, total_count(call, world), element_bytes(call)};
  }

  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// Holds up to 64 values. One thread at a time.
template <typename Value>
class ShapeCache {
 public:
  /// The value for `call`, whose shape is `shape`; made by make() if it is not there. Good until
  /// the next call.
  template <typename Make>
  const Value& get(const CallShape& shape, const CollectiveCall& call, const Make& make) {
    const auto matches = [&](const Entry& entry) {
      return entry.shape == shape && std::ranges::equal(entry.counts, call.counts) &&
             std::ranges::equal(entry.recv_counts, call.recv_counts);
    };
    // Calls of one shape come in a row.
    if (newest_ < entries_.size() && matches(entries_[newest_])) return entries_[newest_].value;
    const auto found = std::ranges::find_if(entries_, matches);
    if (found != entries_.end()) {
      newest_ = static_cast<std::size_t>(found - entries_.begin());
      return found->value;
    }
    Entry entry{.shape = shape,
                .counts = {call.counts.begin(), call.counts.end()},
                .recv_counts = {call.recv_counts.begin(), call.recv_counts.end()},
                .value = make()};
    if (entries_.size() < kMostEntries) {
      newest_ = entries_.size();
      entries_.push_back(std::move(entry));
    } else {
      newest_ = std::exchange(oldest_, (oldest_ + 1) % kMostEntries);
      entries_[newest_] = std::move(entry);
    }
    return entries_[newest_].value;
  }

 private:
  static constexpr std::size_t kMostEntries = 64;

  struct Entry {
    CallShape shape;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> recv_counts;
    Value value;
  };

  std::vector<Entry> entries_;
  std::size_t newest_ = 0;  // the entry used last
  std::size_t oldest_ = 0;  // the entry that gives way next
};

}  // namespace dlaunch
