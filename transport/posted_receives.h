// PostedReceives: receives that wait for their messages, by tag. Of one tag the one that was posted
// first comes first. One thread at a time, that of the endpoint.
#pragma once

#include <map>
#include <tuple>
#include <utility>

#include "transport/endpoint.h"

namespace dlaunch {

/// Any order that tells tags apart.
struct TagOrder {
  bool operator()(const MessageTag& a, const MessageTag& b) const {
    return std::tie(a.sequence, a.context, a.step) < std::tie(b.sequence, b.context, b.step);
  }
};

class PostedReceives {
 public:
  bool empty() const { return receives_.empty(); }
  void add(Transfer& receive) { receives_.emplace(receive.tag, &receive); }

  /// Removes and returns the first one with `tag`, or nullptr.
  Transfer* take(const MessageTag& tag) {
    if (receives_.empty()) return nullptr;
    const auto first = receives_.lower_bound(tag);
    if (first == receives_.end() || first->first != tag) return nullptr;
    Transfer* const receive = first->second;
    receives_.erase(first);
    return receive;
  }

  /// Calls end(receive) for each one, and forgets them.
  template <typename End>
  void end_all(const End& end) {
    for (const auto& [tag, receive] : std::exchange(receives_, {})) end(*receive);
  }

 private:
  std::multimap<MessageTag, Transfer*, TagOrder> receives_;
};

}  // namespace dlaunch
