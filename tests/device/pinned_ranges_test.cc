#include "runtime/cuda/pinned_ranges.h"

#include <array>
#include <cstdint>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

std::uintptr_t address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

TEST(PinnedRanges, TellWhereTheDeviceSeesWhatIsInThem) {
  std::array<char, 64> memory{};
  const char* const host = memory.data();
  PinnedRanges ranges;
  EXPECT_EQ(ranges.device_address(host), address_of(host));
  ranges.add(host + 16, 16, 1000);
  ranges.add(host + 32, 8, 5000);
  EXPECT_EQ(ranges.device_address(host + 15), address_of(host + 15));
  EXPECT_EQ(ranges.device_address(host + 16), 1000U);
  EXPECT_EQ(ranges.device_address(host + 31), 1015U);
  EXPECT_EQ(ranges.device_address(host + 32), 5000U);
  EXPECT_EQ(ranges.device_address(host + 39), 5007U);
  EXPECT_EQ(ranges.device_address(host + 40), address_of(host + 40));
  ranges.remove(host + 16);
  EXPECT_EQ(ranges.device_address(host + 16), address_of(host + 16));
  EXPECT_EQ(ranges.device_address(host + 33), 5001U);
}

}  // namespace
}  // namespace dlaunch
