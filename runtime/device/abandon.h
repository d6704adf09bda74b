// abandon(): keeps until the process ends what a stream may still use that does not come to an end.
// To free it would wait for that stream, maybe for ever.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dlaunch {

inline void abandon(std::shared_ptr<void> used) {
  static std::mutex mutex;
  static auto* const abandoned = new std::vector<std::shared_ptr<void>>;  // outlives all threads
  const std::scoped_lock lock(mutex);
  abandoned->push_back(std::move(used));
}

}  // namespace dlaunch
