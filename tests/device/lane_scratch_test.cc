#include "runtime/device/lane_scratch.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/device/fake_device.h"

namespace dlaunch::testing {
namespace {

TEST(LaneScratch, GivesAnOperationPartsThatDoNotOverlap) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  FakeDevice device;
  LaneScratch scratch(device);
  for (int operation = 0; operation < 20; ++operation) {
    scratch.begin();
    std::vector<std::pair<std::byte*, std::size_t>> parts;
    for (int i = 0; i < 5; ++i) {
      const std::size_t bytes = 1 + random() % 20'000;
      std::byte* const part = scratch.take(bytes).value_or_throw();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part) % 256, 0U);
      std::fill_n(part, bytes, static_cast<std::byte>(i));
      parts.emplace_back(part, bytes);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::size_t k = 0; k < parts[i].second; ++k)
        ASSERT_EQ(parts[i].first[k], static_cast<std::byte>(i));
    }
  }
}

TEST(LaneScratch, TakesNothingMoreWhenOperationsRepeat) {
  FakeDevice device({.memory = std::size_t{1} << 20});
  LaneScratch scratch(device);
  for (int warm = 0; warm < 2; ++warm) {
    scratch.begin();
    (void)scratch.take(30'000).value_or_throw();
    (void)scratch.take(100'000).value_or_throw();
  }
  scratch.begin();
  std::byte* const first = scratch.take(30'000).value_or_throw();
  for (int i = 0; i < 100; ++i) {
    (void)scratch.take(100'000).value_or_throw();
    scratch.begin();
    ASSERT_EQ(scratch.take(30'000).value_or_throw(), first);
  }
}

TEST(LaneScratch, KeepsWhatItGaveWhereItIsWhenItGrows) {
  FakeDevice device;
  LaneScratch scratch(device);
  std::byte* const old = scratch.take(1000).value_or_throw();
  *old = std::byte{7};
  scratch.begin();
  EXPECT_NE(scratch.take(1 << 20).value_or_throw(), old);
  EXPECT_EQ(device.place_of(old), MemoryPlace::kThisDevice) << "a recording may name it";
  EXPECT_EQ(*old, std::byte{7});
}

TEST(LaneScratch, SaysWhenThereIsNoMemory) {
  FakeDevice device({.memory = 1 << 16});
  LaneScratch scratch(device);
  EXPECT_EQ(scratch.take(0).value_or_throw(), nullptr);
  EXPECT_FALSE(scratch.take(1 << 20).ok());
  EXPECT_TRUE(scratch.take(1 << 12).ok());
}

}  // namespace
}  // namespace dlaunch::testing
