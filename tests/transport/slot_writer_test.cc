// SlotWriter copies what it is given, by whichever kind of store it has chosen.
#include "transport/shm/slot_writer.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

constexpr std::size_t kMost = std::size_t{200} << 10;
constexpr std::size_t kMargin = 256;

// Copies between pages that were never touched: so slow that the writer takes its readers to be
// far, and streams from then on.
void slow_down(SlotWriter& writer) {
  constexpr std::size_t kBytes = std::size_t{64} << 10;
  for (int copy = 0; copy < 4; ++copy) {
    void* fresh =
        ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(fresh, MAP_FAILED);
    auto* memory = static_cast<std::byte*>(fresh);
    writer.copy(memory, memory + kBytes, kBytes, kBytes);
    ::munmap(fresh, 2 * kBytes);
  }
}

class SlotWriters : public ::testing::Test {
 protected:
  SlotWriters() : source_(kMost + 2 * kMargin), target_(kMost + 2 * kMargin) {}

  // Copies and compares; looks also at what lies around the target.
  void check_copy(SlotWriter& writer, std::size_t from, std::size_t into, std::size_t bytes) {
    for (std::byte& byte : source_) byte = static_cast<std::byte>(random_());
    std::ranges::fill(target_, std::byte{0x5a});
    std::vector<std::byte> expected = target_;
    for (std::size_t i = 0; i < bytes; ++i) expected[into + i] = source_[from + i];
    writer.copy(target_.data() + into, source_.data() + from, bytes, bytes);
    ASSERT_TRUE(target_ == expected)
        << bytes << " bytes from offset " << from << " to " << into << ", seed " << seed_;
  }

  std::uint64_t seed_ = std::random_device{}();
  std::minstd_rand random_{static_cast<unsigned>(seed_)};
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
};

TEST_F(SlotWriters, CopyAtEveryAlignment) {
  SlotWriter writer;
  ASSERT_NO_FATAL_FAILURE(slow_down(writer));
  for (std::size_t from = 0; from < 64; from += 1 + from % 5) {
    for (std::size_t into = 0; into < 64; into += 7) {
      const std::size_t bytes = 1'900 + random_() % 400;  // longer ones are streamed
      std::vector<std::byte> small(source_.begin(), source_.begin() + 4'096);
      for (std::byte& byte : small) byte = static_cast<std::byte>(random_());
      std::vector<std::byte> copy(4'096, std::byte{0x5a});
      writer.copy(copy.data() + into, small.data() + from, bytes, bytes);
      ASSERT_TRUE(std::equal(copy.begin() + static_cast<std::ptrdiff_t>(into),
                             copy.begin() + static_cast<std::ptrdiff_t>(into + bytes),
                             small.begin() + static_cast<std::ptrdiff_t>(from)))
          << bytes << " bytes from offset " << from << " to " << into << ", seed " << seed_;
      ASSERT_EQ(copy[into + bytes], std::byte{0x5a});
      ASSERT_TRUE(into == 0 || copy[into - 1] == std::byte{0x5a});
    }
  }
}

TEST_F(SlotWriters, CopyEveryLengthUpTo200KiB) {
  SlotWriter writer;
  writer.copy(nullptr, nullptr, 0, 0);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{2'047},
        std::size_t{2'048}, std::size_t{2'111}, std::size_t{32} << 10, kMost}) {
    check_copy(writer, random_() % kMargin, random_() % kMargin, bytes);
  }
  for (int round = 0; round < 150; ++round) {
    check_copy(writer, random_() % kMargin, random_() % kMargin, random_() % (kMost + 1));
  }
}

TEST_F(SlotWriters, CopyRightlyOnceTheirCopiesHaveBeenSlow) {
  SlotWriter writer;
  for (int round = 0; round < 4; ++round) {
    ASSERT_NO_FATAL_FAILURE(slow_down(writer));
    for (int copy = 0; copy < 40; ++copy) {  // with a trial of the other way among them
      const std::size_t most = copy % 2 == 0 ? 5'000 : kMost;
      check_copy(writer, random_() % kMargin, random_() % kMargin, random_() % (most + 1));
    }
  }
}

// Streaming stores are ordered with nothing else; the release store that follows them must be.
TEST_F(SlotWriters, HandDataToAnotherThread) {
  constexpr int kTurns = 400;
  SlotWriter writer;
  ASSERT_NO_FATAL_FAILURE(slow_down(writer));
  std::atomic<int> written{0};
  std::atomic<int> seen{0};
  std::atomic<int> wrong{0};
  const auto length = [](int turn) {
    return turn % 3 == 0 ? std::size_t{96} << 10 : std::size_t{4} << 10;
  };
  std::thread reader([&] {
    for (int turn = 1; turn <= kTurns; ++turn) {
      while (written.load(std::memory_order_acquire) < turn) std::this_thread::yield();
      const auto want = static_cast<std::byte>(turn);
      const auto* begin = target_.data();
      if (!std::all_of(begin, begin + length(turn), [&](std::byte b) { return b == want; })) {
        wrong.fetch_add(1);
      }
      seen.store(turn, std::memory_order_release);
    }
  });
  for (int turn = 1; turn <= kTurns; ++turn) {
    if (turn % 50 == 0) slow_down(writer);
    std::ranges::fill(source_, static_cast<std::byte>(turn));
    writer.copy(target_.data(), source_.data(), length(turn), length(turn));
    written.store(turn, std::memory_order_release);
    while (seen.load(std::memory_order_acquire) < turn) std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace dlaunch
