#include "tests/cuda_on_host/host_pages.h"

#include <sys/mman.h>

#include <algorithm>

namespace dlaunch::cuda_on_host {

void* HostPages::allocate(std::size_t bytes) {
  if (bytes > available()) return nullptr;
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  sizes_.emplace(memory, bytes);
  used_ += bytes;
  return memory;
}

void HostPages::release(void* memory) {
  const auto found = sizes_.find(memory);
  if (found == sizes_.end()) return;
  munmap(memory, found->second);
  used_ -= found->second;
  sizes_.erase(found);
}

bool HostPages::contains(const void* memory) const {
  const auto* const place = static_cast<const std::byte*>(memory);
  return std::ranges::any_of(sizes_, [&](const auto& allocation) {
    const auto* const begin = static_cast<const std::byte*>(allocation.first);
    return begin <= place && place < begin + allocation.second;
  });
}

void HostPages::set_accessible(bool accessible) const {
  for (const auto& [memory, bytes] : sizes_)
    mprotect(memory, bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

HostPages& device_pages() {
  static HostPages the_one;
  return the_one;
}

}  // namespace dlaunch::cuda_on_host
