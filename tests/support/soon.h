// What a test allows for what happens at once unless something is broken.
#pragma once

#include <chrono>
#include <thread>

#include "runtime/base/deadline.h"

namespace dlaunch::testing {

/// Far enough away for a machine that is busy with other tests.
inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

/// Whether it becomes true until then. For what the system has no event for, so that one has to
/// look again and again.
template <typename Condition>
bool becomes_true(const Condition& condition, Deadline deadline) {
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// How long it may take until something is found out that is not waited for, as a death or a
/// mismatch: ten times what is promised and measured on a machine of one's own, and still less than
/// any deadline at which it would be found out otherwise.
inline constexpr std::chrono::seconds kPromptly{8};

}  // namespace dlaunch::testing
