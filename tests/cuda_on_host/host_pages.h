// Device memory as pages of the host that can be touched only while the device works: a test that
// reads a tensor through its pointer ends by SIGSEGV, as it does with a device.
//
// Used by one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>

namespace dlaunch::cuda_on_host {

class HostPages {
 public:
  /// Null if there is no memory.
  void* allocate(std::size_t bytes);
  /// Of so many bytes in all; at first, without end.
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  std::size_t available() const { return limit_ - std::min(limit_, used_); }
  void release(void* memory);
  bool contains(const void* memory) const;
  void set_accessible(bool accessible) const;

 private:
  std::map<void*, std::size_t> sizes_;
  std::size_t used_ = 0;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
};

/// The device's.
HostPages& device_pages();

}  // namespace dlaunch::cuda_on_host
