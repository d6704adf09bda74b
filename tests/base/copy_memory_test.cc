#include "runtime/base/copy_memory.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

// Of every length around those at which the way of copying changes, at every distance between the
// addresses within a vector, and of random ones; what lies beside it stays.
TEST(CopyMemory, CopiesWhatIsAskedForAndNothingElse) {
  constexpr std::size_t kMost = 70'000;
  constexpr std::size_t kMargin = 256;
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::byte> source(kMost + 2 * kMargin);
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  std::vector<std::size_t> lengths{0, 1, 127, 128, 2047, 2048, 2049, 2079, 2080, 2175, 2176, 4096};
  for (int i = 0; i < 50; ++i) lengths.push_back(random() % kMost);
  constexpr std::byte kUntouched{0x5a};
  for (const std::size_t length : lengths) {
    for (int i = 0; i < 40; ++i) {
      const std::size_t from = random() % kMargin;
      const std::size_t to = i < 33 ? static_cast<std::size_t>(i) : random() % kMargin;
      std::vector<std::byte> expected(length + 2 * kMargin, kUntouched);
      std::vector<std::byte> target(expected.size());
      std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), length,
                  expected.begin() + static_cast<std::ptrdiff_t>(to));
      for (const auto copy : {copy_memory, copy_by_vectors}) {
        target.assign(target.size(), kUntouched);
        copy(target.data() + to, source.data() + from, length);
        ASSERT_TRUE(target == expected) << length << " bytes from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace dlaunch
