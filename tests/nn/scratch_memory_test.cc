// That oneDNN writes no further than the scratch memory it is given: it trusts the caller with its
// size, and the sanitizers do not see its code.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/caching_allocator.h"
#include "nn/cpu/conv2d.h"
#include "nn/cpu/matmul.h"
#include "nn/cpu/onednn.h"
#include "nn/cpu/system_memory.h"
#include "runtime/base/half.h"
#include "runtime/base/round_up.h"

namespace dlaunch::nn {
namespace {

/// The system's memory in blocks of whole pages. What is left over of a block's last page holds a
/// pattern, which must be there still when the block is given back.
class GuardedMemory final : public MemorySource {
 public:
  std::size_t alignment() const override { return kPage; }
  std::size_t granularity() const override { return plain_->granularity(); }
  std::size_t smallest_segment() const override { return plain_->smallest_segment(); }
  std::string exhausted() const override { return plain_->exhausted(); }
  void* obtain(std::size_t bytes) override { return plain_->obtain(bytes); }
  bool give_back(void* segment, std::size_t bytes) noexcept override {
    return plain_->give_back(segment, bytes);
  }

  void mark_used(void* memory, std::size_t bytes) override {
    plain_->mark_used(memory, round_up(bytes, kPage));
    std::memset(static_cast<std::byte*>(memory) + bytes, kPattern, round_up(bytes, kPage) - bytes);
    used_[memory] = bytes;
  }
  void mark_free(void* memory, std::size_t bytes) noexcept override {
    // Segments are free from the beginning.
    if (const auto block = used_.extract(memory)) expect_pattern(memory, block.mapped(), bytes);
    plain_->mark_free(memory, bytes);
  }

 private:
  static constexpr unsigned char kPattern = 0x5a;

  static void expect_pattern(const void* memory, std::size_t used, std::size_t size) {
    const auto* const bytes = static_cast<const unsigned char*>(memory);
    const auto* const found = std::find_if(bytes + used, bytes + size,
                                           [](unsigned char byte) { return byte != kPattern; });
    EXPECT_EQ(found, bytes + size)
        << used << " bytes; number " << found - bytes << " was written to";
  }

  std::unique_ptr<MemorySource> plain_ = cpu::make_system_memory();
  std::map<void*, std::size_t> used_;  // bytes
};

class ScratchMemoryOf : public testing::TestWithParam<DType> {
 protected:
  /// Values of this type; which ones does not matter here.
  static std::vector<std::byte> array(std::int64_t count, DType dtype = GetParam()) {
    return std::vector<std::byte>(static_cast<std::size_t>(count) * size_of(dtype),
                                  std::byte{0x3e});
  }

  void convolve(cpu::ConvolutionAlgorithm algorithm, const Conv2dGeometry& g) {
    const DType type = GetParam();
    cpu::Convolutions convolutions(allocator_, algorithm);
    auto x = array(g.n * g.height * g.width * g.in);
    auto y = array(g.output().size());
    const std::vector<float> weights(
        static_cast<std::size_t>(g.out * g.kernel_h * g.kernel_w * g.in), 0.5F);
    std::vector<float> gradient(weights.size());
    std::unique_ptr<DerivedData> derived;
    const WeightsRef reference{weights.data(), 1, &derived};
    convolutions.forward(g, {x.data(), type}, reference, nullptr, {y.data(), type});
    convolutions.backward_weights(g, {x.data(), type}, {y.data(), type}, gradient.data(), nullptr);
    convolutions.backward_data(g, {y.data(), type}, reference, {x.data(), type});
  }

  CachingAllocator allocator_{std::make_unique<GuardedMemory>()};
};

Conv2dGeometry square(std::int64_t n, std::int64_t side, std::int64_t in, std::int64_t out,
                      std::int64_t kernel, std::int64_t stride) {
  const std::int64_t pad = kernel / 2;
  return {n, side, side, in, out, kernel, kernel, stride, stride, pad, pad};
}

TEST_P(ScratchMemoryOf, ConvolutionsIsLargeEnough) {
  for (const auto algorithm :
       {cpu::ConvolutionAlgorithm::kDirect, cpu::ConvolutionAlgorithm::kWinograd}) {
    convolve(algorithm, square(5, 33, 64, 64, 3, 1));  // several blocks of tiles
    convolve(algorithm, square(9, 16, 128, 144, 3, 1));
    convolve(algorithm, square(3, 15, 64, 96, 3, 2));
    convolve(algorithm, square(3, 8, 96, 128, 1, 2));
    convolve(algorithm, square(2, 4, 256, 272, 3, 2));  // gradients by a product
    convolve(algorithm, square(2, 17, 3, 24, 3, 1));
  }
}

TEST_P(ScratchMemoryOf, ProductsIsLargeEnough) {
  cpu::Products products(allocator_);
  for (const auto& [m, n, k] :
       std::vector<std::array<std::int64_t, 3>>{{100, 65, 191}, {17, 300, 64}, {256, 129, 33}}) {
    for (const std::int64_t count : {1, 3})
      for (const DType sums : {DType::kF32, GetParam()}) {
        const auto a = array(count * m * k);
        const auto b = array(count * k * n);
        auto d = array(count * m * n, sums);
        for (const float beta : {0.0F, 1.0F})
          for (const bool transpose : {false, true})
            products.run({.transpose_a = transpose,
                          .transpose_b = !transpose,
                          .count = count,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = 0.5F + beta,
                          .beta = beta,
                          .a = {a.data(), GetParam()},
                          .b = {b.data(), GetParam()},
                          .c = {d.data(), sums},
                          .d = {d.data(), sums}});
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ScratchMemoryOf, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace dlaunch::nn
