#include "nn/cpu/system_memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <map>

#include "runtime/base/available_memory.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, an AVX-512 register
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmallestSegment = std::size_t{8} << 20;

class SystemMemory final : public MemorySource {
 public:
  std::size_t alignment() const override { return kAlignment; }
  std::size_t granularity() const override { return kHugePage; }
  std::size_t smallest_segment() const override { return kSmallestSegment; }

  void* obtain(std::size_t bytes) override {
    // The system grants more than it has, and ends the process that writes to it.
    const std::size_t available = available_memory();
    if (available != 0 && bytes > available) return nullptr;
    // Mapped a huge page longer, so that a part of the size wanted begins at a huge page; what is
    // left over is never touched.
    const std::size_t mapped = bytes + kHugePage;
    void* mapping =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    void* segment = mapping;
    std::size_t space = mapped;
    std::align(kHugePage, bytes, segment, space);
    madvise(segment, bytes, MADV_HUGEPAGE);  // a wish: fewer page faults at the first touch
    mappings_.emplace(segment, mapping);
    return segment;
  }

  bool give_back(void* segment, std::size_t bytes) noexcept override {
    const auto mapping = mappings_.find(segment);
    ASAN_UNPOISON_MEMORY_REGION(segment, bytes);
    munmap(mapping->second, bytes + kHugePage);
    mappings_.erase(mapping);
    return true;
  }

  std::string exhausted() const override { return "out of memory"; }
  void mark_used(void* memory, std::size_t bytes) override {
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
  }
  void mark_free(void* memory, std::size_t bytes) noexcept override {
    ASAN_POISON_MEMORY_REGION(memory, bytes);
  }

 private:
  std::map<void*, void*> mappings_;  // what mmap gave, by the segment in it
};

}  // namespace

std::unique_ptr<MemorySource> make_system_memory() {
  return std::make_unique<SystemMemory>();
}

}  // namespace dlaunch::nn::cpu
