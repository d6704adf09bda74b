#include "tests/cuda_on_host/host_pages.h"

#include <sys/mman.h>

namespace dlaunch::cuda_on_host {

void* HostPages::allocate(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  sizes_.emplace(memory, bytes);
  return memory;
}

void HostPages::release(void* memory) {
  const auto found = sizes_.find(memory);
  if (found == sizes_.end()) return;
  munmap(memory, found->second);
  sizes_.erase(found);
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
