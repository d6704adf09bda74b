// Memory from Communicator::allocate, and the allocator behind it.
#include "runtime/comm/shared_heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096;

// A shared mapping as the transport makes it: of a memory file.
class Segment {
 public:
  explicit Segment(std::size_t pages) : bytes_(pages * kPage) {
    file_ = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(file_, static_cast<off_t>(bytes_)), 0);
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~Segment() {
    ::munmap(memory_, bytes_);
    ::close(file_);
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  std::size_t bytes_;
  int file_ = -1;
  void* memory_ = nullptr;
};

TEST(SharedHeap, HandsOutWholePagesThatDoNotOverlapAndTakesThemBack) {
  const Segment segment(64);
  const auto heap = SharedHeap::over(segment.bytes());
  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::pair<SharedMemory, std::byte>> held;
  for (int i = 0; i < 3'000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      const std::size_t victim = random() % held.size();
      for (const std::byte byte : held[victim].first.bytes()) {
        ASSERT_EQ(byte, held[victim].second);
      }
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    auto piece = heap->allocate(1 + random() % (5 * kPage));
    if (!piece.ok()) {
      EXPECT_THAT(piece.status().to_string(), HasSubstr("no room for "));
      continue;
    }
    const auto mark = static_cast<std::byte>(random());
    std::ranges::fill(piece->bytes(), mark);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece->bytes().data()) % kPage, 0U);
    held.emplace_back(*std::move(piece), mark);
  }
  held.clear();
  auto everything = heap->allocate(64 * kPage);
  ASSERT_TRUE(everything.ok()) << "gaps were not joined";
  EXPECT_EQ(everything->bytes().size(), 64 * kPage);
}

TEST(SharedHeap, GivesFreedPagesBackToTheSystem) {
  const Segment segment(4);
  const auto heap = SharedHeap::over(segment.bytes());
  {
    auto piece = heap->allocate(2 * kPage);
    ASSERT_TRUE(piece.ok());
    std::ranges::fill(piece->bytes(), std::byte{1});
  }
  // A hole in the file reads as zeros.
  EXPECT_EQ(segment.bytes()[0], std::byte{0});
  EXPECT_EQ(segment.bytes()[2 * kPage - 1], std::byte{0});
}

TEST(SharedHeap, SaysHowMuchIsLeft) {
  const Segment segment(4);
  const auto heap = SharedHeap::over(segment.bytes());
  const auto one = heap->allocate(1);
  const auto more = heap->allocate(4 * kPage);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(more.status().code(), StatusCode::kIo);
  EXPECT_EQ(more.status().to_string(),
            "no room for 16384 bytes in the shared segment, where at most 12288 bytes are free in "
            "one piece");
}

TEST(SharedHeap, MayBeFreedAfterItsMemoryIsGone) {
  SharedMemory late;
  {
    const Segment segment(2);
    const auto heap = SharedHeap::over(segment.bytes());
    late = heap->allocate(10).value_or_throw();
    heap->close();
  }
  late = SharedMemory();  // touches nothing
  EXPECT_TRUE(late.bytes().empty());
}

TEST(Allocate, GivesAlignedMemoryThatCollectivesWorkOn) {
  for (const int world : {1, 3}) {
    run_threads_as_ranks(world, [&](Communicator& comm) {
      auto memory = comm.allocate(1'001 * sizeof(float));
      ASSERT_TRUE(memory.ok()) << memory.status().to_string();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->bytes().data()) % 64, 0U);
      const std::span<float> values = memory->as<float>();
      ASSERT_EQ(values.size(), 1'001U);
      std::ranges::fill(values, 2.0F);
      ASSERT_TRUE(comm.all_reduce(values).ok());
      EXPECT_EQ(values[1'000], 2.0F * static_cast<float>(world));
      const SharedMemory moved = *std::move(memory);
      EXPECT_EQ(moved.as<float>().data(), values.data());
      EXPECT_TRUE(comm.allocate(0)->bytes().empty());
    });
  }
}

TEST(Allocate, RefusesWhatNoMachineHas) {
  run_threads_as_ranks(1, [](Communicator& comm) {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    for (const std::size_t bytes : {kMost, kMost - 4'000, kMost - 4'094, kMost / 2})
      EXPECT_EQ(comm.allocate(bytes).status().code(), StatusCode::kIo) << bytes;
  });
}

TEST(Allocate, MayBeFreedAfterTheCommunicator) {
  ThreadWorld network(1);
  auto comm = network.communicator(0);
  SharedMemory memory = comm->allocate(100).value_or_throw();
  comm.reset();
  memory = SharedMemory();
}

}  // namespace
}  // namespace dlaunch::testing
