// PinnedRanges: where a device sees the host's memory that has been pinned for it. Mostly at the
// host's own addresses, but CUDA promises that of memory that it has allocated only.
//
// May be used by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace dlaunch {

class PinnedRanges {
 public:
  void add(const void* host, std::size_t bytes, std::uintptr_t device) {
    const std::lock_guard lock(mutex_);
    ranges_[number_of(host)] = {bytes, device};
  }
  void remove(const void* host) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(number_of(host));
  }
  /// The host's address for what is in no range.
  std::uintptr_t device_address(const void* host) const {
    const std::uintptr_t address = number_of(host);
    const std::lock_guard lock(mutex_);
    const auto behind = ranges_.upper_bound(address);
    if (behind == ranges_.begin()) return address;
    const auto& [begin, range] = *std::prev(behind);
    return address - begin < range.bytes ? range.device + (address - begin) : address;
  }

 private:
  struct Range {
    std::size_t bytes = 0;
    std::uintptr_t device = 0;
  };
  static std::uintptr_t number_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
  }

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;  // by the host's address
};

}  // namespace dlaunch
