#include "nn/core/tensor.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "nn/cpu/caching_allocator.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

TEST(ShapeTest, CountsElementsAndNamesItself) {
  EXPECT_EQ(Shape({32, 28, 28, 64}).to_string(), "[32, 28, 28, 64]");
  EXPECT_EQ(Shape{}.to_string(), "[]");
  EXPECT_EQ(Shape{}.size(), 1);
  EXPECT_EQ((Shape{3, 0, 2}).size(), 0);
  EXPECT_EQ((Shape{3, 4})[-1], 4);
  EXPECT_EQ((Shape{3, 4}).with(0, 5), (Shape{5, 4}));
  EXPECT_NE((Shape{3}), (Shape{3, 1}));
  EXPECT_NE((Shape{3, 0}), (Shape{3}));
}

TEST(ShapeTest, RefusesWhatIsNoShape) {
  EXPECT_THROW(Shape({1, 2, 3, 4, 5}), Error);
  EXPECT_THROW(Shape({2, -1}), Error);
  EXPECT_THROW((Shape{3, 4})[2], Error);
  EXPECT_THROW((Shape{3, 4})[-3], Error);
  EXPECT_THROW((Shape{3, 4}).with(0, -1), Error);
}

using TensorTest = OpTest;

TEST_F(TensorTest, HoldsTheValuesItWasMadeFrom) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::from<float>(*backend_, {2, 3}, values);
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(tensor.data<const float>(), values.data(), sizeof(float) * 6), 0);
  EXPECT_EQ(Tensor::from<std::int64_t>(*backend_, {1}, std::vector<std::int64_t>{7}).dtype(),
            DType::kI64);
  EXPECT_THROW(Tensor::from<float>(*backend_, {7}, values), Error);
  EXPECT_THROW(tensor.data<std::int32_t>(), Error);
  EXPECT_THROW(tensor.item(), Error);
  EXPECT_EQ(Tensor::from<float>(*backend_, {1, 1}, std::vector<float>{8}).item(), 8.0F);
}

TEST_F(TensorTest, MemoryIsAlignedToCacheLines) {
  for (const std::int64_t count : {1, 17, 1000}) {
    const Tensor tensor = Tensor::zeros(*backend_, {count});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data<const float>()) % 64, 0U);
  }
}

TEST_F(TensorTest, ViewsShareMemory) {
  const Tensor flat = Tensor::zeros(*backend_, {10});
  const Tensor view = Tensor::view_of(flat, 4, {2, 3});
  view.values<float>()[5] = 9.0F;
  EXPECT_EQ(flat.values<const float>()[9], 9.0F);
  const Tensor inner = Tensor::view_of(view, 3, {3});
  EXPECT_EQ(inner.values<const float>()[2], 9.0F);
  EXPECT_EQ(view.view({6}).values<const float>()[5], 9.0F);
  EXPECT_THROW(Tensor::view_of(flat, 5, {2, 3}), Error);
  EXPECT_THROW(Tensor::view_of(flat, -1, {1}), Error);
  EXPECT_THROW(flat.view({11}), Error);
}

TEST_F(TensorTest, MovesIntoAFlatTensorWithAllItsHandles) {
  Tensor tensor = Tensor::from<float>(*backend_, {2}, std::vector<float>{1, 2});
  const Tensor handle = tensor;
  const Tensor flat = Tensor::zeros(*backend_, {8});
  tensor.move_into(flat, 3);
  EXPECT_EQ(flat.values<const float>()[4], 2.0F);
  flat.values<float>()[3] = 5.0F;
  EXPECT_EQ(handle.values<const float>()[0], 5.0F);
}

TEST_F(TensorTest, KnowsItsSoleOwner) {
  Tensor tensor = Tensor::zeros(*backend_, {4});
  EXPECT_TRUE(tensor.sole_owner());
  {
    const Tensor view = tensor.detach();
    EXPECT_FALSE(tensor.sole_owner());
  }
  EXPECT_TRUE(tensor.sole_owner());
  const Tensor handle = tensor;
  EXPECT_FALSE(tensor.sole_owner());
}

TEST_F(TensorTest, OnlyFloatingTensorsHaveGradients) {
  Tensor labels = Tensor::zeros(*backend_, {4}, DType::kI32);
  EXPECT_THROW(labels.set_requires_grad(true), Error);
}

TEST(CachingAllocatorTest, ReusesWhatWasGivenBack) {
  cpu::CachingAllocator allocator;
  void* a = allocator.allocate(1000);
  void* b = allocator.allocate(5000);
  EXPECT_EQ(allocator.stats().in_use, 1024U + 5056U);
  allocator.deallocate(a, 1000);
  EXPECT_EQ(allocator.allocate(900), a);
  allocator.deallocate(a, 900);
  allocator.deallocate(b, 5000);
  EXPECT_EQ(allocator.stats().in_use, 0U);
  EXPECT_EQ(allocator.stats().peak, 1024U + 5056U);
  EXPECT_EQ(allocator.stats().allocations, 1U);
  allocator.reset_peak();
  EXPECT_EQ(allocator.stats().peak, 0U);
  EXPECT_EQ(allocator.allocate(0), nullptr);
}

// Random allocations, each filled with its own byte, against a plain record of what is held.
TEST(CachingAllocatorTest, NeverHandsOutTheSameBytesTwice) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  struct Held {
    unsigned char* memory;
    std::size_t bytes;
    unsigned char mark;
  };
  std::vector<Held> held;
  cpu::CachingAllocator allocator;
  for (int i = 0; i < 3000; ++i) {
    if (held.size() > 40 || (!held.empty() && random() % 2 == 0)) {
      std::swap(held[random() % held.size()], held.back());
      const Held last = held.back();
      held.pop_back();
      for (std::size_t k = 0; k < last.bytes; k += 61) ASSERT_EQ(last.memory[k], last.mark);
      allocator.deallocate(last.memory, last.bytes);
    } else {
      const std::size_t bytes = 1 + random() % (std::size_t{1} << (random() % 19));
      auto* memory = static_cast<unsigned char*>(allocator.allocate(bytes));
      const auto mark = static_cast<unsigned char>(i);
      std::memset(memory, mark, bytes);
      held.push_back({memory, bytes, mark});
    }
  }
  for (const Held& last : held) allocator.deallocate(last.memory, last.bytes);
  EXPECT_EQ(allocator.stats().in_use, 0U);
  // All is one block again: as much as the first segment holds can be had without the system.
  const auto before = allocator.stats().allocations;
  allocator.deallocate(allocator.allocate(std::size_t{8} << 20), std::size_t{8} << 20);
  EXPECT_EQ(allocator.stats().allocations, before);
}

TEST(CachingAllocatorTest, SaysWhenThereIsNoMemory) {
  cpu::CachingAllocator allocator;
  EXPECT_THROW(allocator.allocate(std::size_t{1} << 60), Error);
  EXPECT_EQ(allocator.stats().in_use, 0U);
}

}  // namespace
}  // namespace dlaunch::nn
