// Device memory as pages of the host that can be touched only while the device works: a test that
// reads a tensor through its pointer ends by SIGSEGV, as it does with a device.
//
// Used by one thread.
#pragma once

#include <cstddef>
#include <map>

namespace dlaunch::cuda_on_host {

class HostPages {
 public:
  /// Null if there is no memory.
  void* allocate(std::size_t bytes);
  void release(void* memory);
  bool contains(const void* memory) const;
  void set_accessible(bool accessible) const;

 private:
  std::map<void*, std::size_t> sizes_;
};

/// The device's.
HostPages& device_pages();

}  // namespace dlaunch::cuda_on_host
