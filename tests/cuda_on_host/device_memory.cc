// The device's memory as nn/cuda/device_memory.cc has it, but what is handed out begins with bytes
// of 0xff, NaNs in every floating type, so that kernels which read what nobody has written show;
// and AddressSanitizer knows what is handed out.
#include "nn/cuda/device_memory.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda_on_host/queue.h"

namespace dlaunch::nn::cuda {

std::unique_ptr<MemorySource> make_plain_device_memory(
    int device, std::function<bool()> before_giving_back);  // that one

namespace {

using cuda_on_host::queue;

class MarkedMemory final : public MemorySource {
 public:
  explicit MarkedMemory(std::unique_ptr<MemorySource> plain) : plain_(std::move(plain)) {}

  std::size_t alignment() const override { return plain_->alignment(); }
  std::size_t granularity() const override { return plain_->granularity(); }
  std::size_t smallest_segment() const override { return plain_->smallest_segment(); }
  std::string exhausted() const override { return plain_->exhausted(); }

  void* obtain(std::size_t bytes) override {
    is_for_recordings_ = queue().capturing();
    return plain_->obtain(bytes);
  }
  void take_over(void* /*segment*/, std::size_t /*bytes*/) override {
    is_for_recordings_ = queue().capturing();
  }
  std::size_t available() const override { return plain_->available(); }
  bool give_back(void* segment, std::size_t bytes) noexcept override {
    (void)queue().drain();
    ASAN_UNPOISON_MEMORY_REGION(segment, bytes);
    return plain_->give_back(segment, bytes);
  }
  void mark_used(void* memory, std::size_t bytes) override {
    add([=] {
      ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
      std::memset(memory, kUninitialised, std::min(bytes, kMostFilled));
    });
  }
  void mark_free(void* memory, std::size_t bytes) noexcept override {
    add([=] { ASAN_POISON_MEMORY_REGION(memory, bytes); });
  }

 private:
  static constexpr int kUninitialised = 0xff;
  static constexpr std::size_t kMostFilled = std::size_t{1} << 20;  // of a workspace of 32 MiB

  // In the order of the kernels that use the memory. A graph's memory is handed out each time that
  // the graph runs.
  void add(cuda_on_host::Work work) const {
    if (is_for_recordings_ && queue().capturing()) {
      queue().add_to_graph(std::move(work));
    } else {
      queue().add_to_device(std::move(work));
    }
  }

  std::unique_ptr<MemorySource> plain_;
  bool is_for_recordings_ = false;
};

}  // namespace

std::unique_ptr<MemorySource> make_device_memory(int device,
                                                 std::function<bool()> before_giving_back) {
  return std::make_unique<MarkedMemory>(
      make_plain_device_memory(device, std::move(before_giving_back)));
}

}  // namespace dlaunch::nn::cuda
