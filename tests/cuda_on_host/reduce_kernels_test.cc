// The reduction kernels against the reductions of the CPU, bit by bit.
#include "runtime/cuda/reduce_kernels.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/collective/reduction.h"
#include "runtime/device/device.h"

namespace dlaunch {
namespace {

template <typename T>
std::vector<T> values_of(std::mt19937& random, std::size_t count) {
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>((std::uint64_t{random()} << 32) | random());
    } else {
      value = static_cast<T>(static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-28F);
    }
  }
  return values;
}

// `offset` elements into memory that kernels read 16 bytes at a time where that is aligned.
template <typename T>
void expect_the_same_bits(std::mt19937& random, ReduceOp op, std::size_t ranks, std::size_t count,
                          std::size_t offset) {
  std::vector<std::vector<T>> inputs;
  std::vector<const void*> operands;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(values_of<T>(random, offset + count));
    operands.push_back(inputs.back().data() + offset);
  }
  const auto divisor = static_cast<int>(ranks);
  std::vector<T> expected(count);
  reduce_operands(op, dtype_of<T>, expected.data(), operands, count, divisor);
  T* const into = inputs[ranks / 2].data() + offset;  // an operand may be the result
  ASSERT_TRUE(queue_reduction(op, dtype_of<T>, into, operands, count, divisor, nullptr).ok());
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_TRUE(count == 0 || std::memcmp(into, expected.data(), count * sizeof(T)) == 0)
      << to_string(op) << " " << to_string(dtype_of<T>) << " of " << count << " elements of "
      << ranks << " ranks from " << offset;
}

TEST(ReduceKernels, GiveTheBitsOfTheCpu) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : reductions_of(dtype)) {
      visit_dtype(dtype, [&]<typename T>() {
        for (const std::size_t count : {0, 1, 7, 257, 4099})
          for (const std::size_t offset : {0, 1})
            expect_the_same_bits<T>(random, op, 1 + random() % 8, count, offset);
        expect_the_same_bits<T>(random, op, kMostOperands, 19, 0);
      });
    }
  }
}

// More than all threads of the largest grid have at once.
TEST(ReduceKernels, GoThroughVectorsThatAreLargerThanAGrid) {
  std::mt19937 random(std::random_device{}());
  constexpr std::size_t kCount = std::size_t{1024} * 256 + 77;
  expect_the_same_bits<float>(random, ReduceOp::kSum, 2, kCount, 1);
  expect_the_same_bits<double>(random, ReduceOp::kMax, 2, 3 * kCount, 0);
}

TEST(ReduceKernels, AreThereForEveryReductionAndType) {
  EXPECT_EQ(load_reduction_kernels().to_string(), Status().to_string());
}

TEST(ReduceKernels, RefuseMoreOperandsThanAKernelTakes) {
  float value = 0;
  const std::vector<const void*> operands(kMostOperands + 1, &value);
  EXPECT_FALSE(queue_reduction(ReduceOp::kSum, DType::kF32, &value, operands, 1, 1, nullptr).ok());
}

}  // namespace
}  // namespace dlaunch
