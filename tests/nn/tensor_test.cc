#include "nn/core/tensor.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

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
  EXPECT_EQ(tensor.host_values<float>(), values);
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
  reference::set_element(view, 5, 9.0F);
  EXPECT_EQ(flat.host_values<float>()[9], 9.0F);
  const Tensor inner = Tensor::view_of(view, 3, {3});
  EXPECT_EQ(inner.host_values<float>()[2], 9.0F);
  EXPECT_EQ(view.view({6}).host_values<float>()[5], 9.0F);
  EXPECT_THROW(Tensor::view_of(flat, 5, {2, 3}), Error);
  EXPECT_THROW(Tensor::view_of(flat, -1, {1}), Error);
  EXPECT_THROW(flat.view({11}), Error);
}

TEST_F(TensorTest, MovesIntoAFlatTensorWithAllItsHandles) {
  Tensor tensor = Tensor::from<float>(*backend_, {2}, std::vector<float>{1, 2});
  const Tensor handle = tensor;
  const Tensor flat = Tensor::zeros(*backend_, {8});
  tensor.move_into(flat, 3);
  EXPECT_EQ(flat.host_values<float>()[4], 2.0F);
  reference::set_element(flat, 3, 5.0F);
  EXPECT_EQ(handle.host_values<float>()[0], 5.0F);
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

TEST_F(TensorTest, IsNeverSoleOwnerOfMemoryThatIsSomebodyElses) {
  const std::vector<float> negative(4, -1.0F);
  const Tensor theirs = Tensor::from<float>(*backend_, {4}, negative);
  const auto over_theirs = [&] {
    return Tensor::over(*backend_, {4}, DType::kF32, theirs.data<float>(),
                        std::make_shared<Tensor>(theirs));
  };
  EXPECT_FALSE(over_theirs().sole_owner());
  (void)relu(over_theirs());
  EXPECT_EQ(theirs.host_values<float>(), negative);
}

TEST_F(TensorTest, RefusesMemoryThatNobodyOwns) {
  float value = 0;
  EXPECT_THROW(Tensor::over(*backend_, {1}, DType::kF32, &value, nullptr), Error);
}

TEST_F(TensorTest, RefusesShapesWhoseSizeOverflows) {
  constexpr std::int64_t kMost = std::int64_t{1} << 59;
  EXPECT_EQ(Shape({kMost}).size(), kMost);
  EXPECT_EQ(Shape({2, kMost / 2, 0}).size(), 0);
  EXPECT_THROW(Shape({kMost + 1}), Error);
  EXPECT_THROW(Shape({kMost, 2}), Error);
  EXPECT_THROW(Shape({std::int64_t{1} << 32, std::int64_t{1} << 32}), Error);
  EXPECT_THROW(Shape({kMost, 0, kMost}), Error);  // whichever dimension is looked at first
  EXPECT_THROW((void)Shape({kMost, 1}).with(1, 2), Error);
}

TEST_F(TensorTest, OnlyFloatingTensorsHaveGradients) {
  Tensor labels = Tensor::zeros(*backend_, {4}, DType::kI32);
  EXPECT_THROW(labels.set_requires_grad(true), Error);
}

}  // namespace
}  // namespace dlaunch::nn
