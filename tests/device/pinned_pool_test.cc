#include "runtime/device/pinned_pool.h"

#include <cstddef>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "tests/device/fake_device.h"
#include "tests/device/fake_stream.h"

namespace dlaunch::testing {
namespace {

TEST(PinnedPool, GivesMemoryAgainWhenTheEventItWasReturnedWithHasPassed) {
  FakeDevice device;
  PinnedPool pool(device);
  const auto event = std::make_shared<FakeEvent>(std::make_shared<FakeContext>(true));
  auto first = pool.take(10'000).value_or_throw();
  const std::byte* const memory = first.data();
  pool.give(std::move(first), event);
  const auto meanwhile = pool.take(10'000).value_or_throw();
  EXPECT_NE(meanwhile.data(), memory) << "the device still copies it";
  *event->passed = true;
  EXPECT_EQ(pool.take(10'000).value_or_throw().data(), memory);
}

TEST(PinnedPool, GivesMemoryAgainAtOnceThatNoEventIsWaitedForAndOnlyForTheSameSize) {
  FakeDevice device;
  PinnedPool pool(device);
  auto first = pool.take(10'000).value_or_throw();
  EXPECT_GE(first.bytes, 10'000U);
  const std::byte* const memory = first.data();
  pool.give(std::move(first), nullptr);
  EXPECT_NE(pool.take(100'000).value_or_throw().data(), memory);
  EXPECT_EQ(pool.take(9'000).value_or_throw().data(), memory);
}

}  // namespace
}  // namespace dlaunch::testing
