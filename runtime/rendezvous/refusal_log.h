// RefusalLog: counts connections that a listener refuses and logs them, but not each one when there
// are many: the first, and then one line in ten seconds, which says how many there were meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/base/logging.h"

namespace dlaunch {

class RefusalLog {
 public:
  explicit RefusalLog(Logger logger) : logger_(std::move(logger)) {}

  /// By one thread.
  void note(spdlog::level::level_enum level, const std::string& peer, const std::string& why);

  /// From any thread.
  std::uint64_t count() const { return count_; }

 private:
  Logger logger_;
  std::atomic<std::uint64_t> count_ = 0;
  std::uint64_t unsaid_ = 0;
  std::chrono::steady_clock::time_point silent_until_;
};

}  // namespace dlaunch
