// soon(): the deadline of what happens at once unless something is broken.
#pragma once

#include <chrono>

#include "runtime/base/deadline.h"

namespace dlaunch::testing {

/// Far enough away for a machine that is busy with other tests.
inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

}  // namespace dlaunch::testing
