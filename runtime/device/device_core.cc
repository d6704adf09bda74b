#include "runtime/device/device_core.h"

#include <thread>

#include "runtime/base/deadline.h"
#include "runtime/base/pause.h"

namespace dlaunch {

Status DeviceCore::wait_for(const DeviceEvent& event) const {
  const Deadline deadline = Deadline::after(timeout.load());
  for (int looks = 0;; ++looks) {
    const Result<bool> done = event.done();
    if (!done.ok() || *done) return done.status();
    if (failure.failed()) return failure.status();
    if (looks < 200) {
      pause_briefly();
      continue;
    }
    if (deadline.expired()) {
      return Status(StatusCode::kTimeout, "the device has not come to this call in time");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace dlaunch
