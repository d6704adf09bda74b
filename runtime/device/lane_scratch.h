// LaneScratch: device memory for what the operations of one stream put down between two steps. It
// is kept: an operation uses what the one before it has used, which the stream has done by then, so
// that operations that repeat ask the device for nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"

namespace dlaunch {

/// Used by one thread at a time. The device must outlive it.
class LaneScratch {
 public:
  explicit LaneScratch(Device& device) : device_(device) {}

  /// An operation begins: all of it is free again.
  void begin() { used_ = 0; }
  /// nullptr for no bytes. The operation's own until begin(); stays where it is as long as this
  /// object lives, for what is recorded names it. An error if the device has no more memory.
  Result<std::byte*> take(std::size_t bytes);

 private:
  Device& device_;
  // Each is at least twice as long as the one before, and only the last is used any more.
  std::vector<std::shared_ptr<void>> blocks_;
  std::size_t length_ = 0;  // of the last
  std::size_t used_ = 0;    // of it
};

}  // namespace dlaunch
