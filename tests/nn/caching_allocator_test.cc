#include "nn/core/caching_allocator.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <sys/sysinfo.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/error.h"
#include "nn/core/recording_pools.h"
#include "nn/cpu/system_memory.h"

namespace dlaunch::nn {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A device whose memory nobody can touch: addresses only, of so many bytes.
class FakeDevice final : public MemorySource {
 public:
  struct State {
    std::size_t capacity = 0;
    std::size_t used = 0;
    bool refuses = false;  // to take anything back
    std::map<std::uintptr_t, std::size_t> segments;
  };
  explicit FakeDevice(State& state, std::uintptr_t first = std::uintptr_t{1} << 40)
      : state_(state), next_(first) {}

  std::size_t alignment() const override { return 256; }
  std::size_t granularity() const override { return 2 * kMiB; }
  std::size_t smallest_segment() const override { return 8 * kMiB; }
  void* obtain(std::size_t bytes) override {
    if (bytes > state_.capacity - state_.used) return nullptr;
    const std::uintptr_t address = next_;
    next_ += bytes;  // neighbours, which must never become one block
    state_.used += bytes;
    state_.segments.emplace(address, bytes);
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  bool give_back(void* segment, std::size_t bytes) noexcept override {
    if (state_.refuses) return false;
    const auto found = state_.segments.find(reinterpret_cast<std::uintptr_t>(segment));
    EXPECT_TRUE(found != state_.segments.end() && found->second == bytes);
    state_.segments.erase(found);
    state_.used -= bytes;
    return true;
  }
  std::size_t available() const override { return state_.capacity - state_.used; }
  std::string exhausted() const override { return "the fake is full"; }

 private:
  State& state_;
  std::uintptr_t next_;
};

class AllocatorOnADevice : public testing::Test {
 protected:
  FakeDevice::State device_{.capacity = 32 * kMiB};
  CachingAllocator allocator_{std::make_unique<FakeDevice>(device_)};
};

TEST(CachingAllocatorTest, ReusesWhatWasGivenBack) {
  CachingAllocator allocator(cpu::make_system_memory());
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
  CachingAllocator allocator(cpu::make_system_memory());
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
  CachingAllocator allocator(cpu::make_system_memory());
  EXPECT_THROW(allocator.allocate(std::size_t{1} << 60), Error);
  EXPECT_EQ(allocator.stats().in_use, 0U);
}

TEST_F(AllocatorOnADevice, TakesSegmentsAndHandsOutAlignedParts) {
  void* a = allocator_.allocate(1);
  void* b = allocator_.allocate(300);
  EXPECT_EQ(static_cast<std::byte*>(b) - static_cast<std::byte*>(a), 256);
  EXPECT_EQ(allocator_.stats().in_use, 256U + 512U);
  EXPECT_EQ(allocator_.stats().reserved, 8 * kMiB);
  void* c = allocator_.allocate(9 * kMiB);
  EXPECT_EQ(allocator_.stats().reserved, 18 * kMiB);
  allocator_.deallocate(a, 1);
  allocator_.deallocate(b, 300);
  allocator_.deallocate(c, 9 * kMiB);
  EXPECT_EQ(allocator_.stats().in_use, 0U);
  EXPECT_EQ(allocator_.stats().reserved, 18 * kMiB);
}

TEST_F(AllocatorOnADevice, TakesTheSmallestBlockThatFits) {
  void* large = allocator_.allocate(10 * kMiB);
  void* small = allocator_.allocate(8 * kMiB);
  allocator_.deallocate(large, 10 * kMiB);
  allocator_.deallocate(small, 8 * kMiB);
  EXPECT_EQ(allocator_.allocate(7 * kMiB), small);
  allocator_.deallocate(small, 7 * kMiB);
}

TEST_F(AllocatorOnADevice, GivesUnusedSegmentsBackBeforeItGivesUp) {
  void* kept = allocator_.allocate(6 * kMiB);
  void* other = allocator_.allocate(20 * kMiB);
  allocator_.deallocate(other, 20 * kMiB);
  EXPECT_EQ(device_.used, 28 * kMiB);
  void* larger = allocator_.allocate(24 * kMiB);
  EXPECT_EQ(device_.used, 32 * kMiB);
  EXPECT_EQ(allocator_.stats().reserved, 32 * kMiB);
  EXPECT_EQ(device_.segments.size(), 2U);
  allocator_.deallocate(larger, 24 * kMiB);
  allocator_.deallocate(kept, 6 * kMiB);
}

TEST_F(AllocatorOnADevice, SaysWhatIsInUseWhenThereIsNoMoreAndGoesOn) {
  void* held = allocator_.allocate(5 * kMiB);
  try {
    allocator_.allocate(30 * kMiB);
    ADD_FAILURE() << "30 of 32 MiB where 8 are taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the fake is full: 30 MiB wanted, 5 MiB in use"));
  }
  void* next = allocator_.allocate(20 * kMiB);
  EXPECT_NE(next, nullptr);
  allocator_.deallocate(next, 20 * kMiB);
  allocator_.deallocate(held, 5 * kMiB);
}

TEST(CachingAllocatorTest, LeavesNothingOnTheDevice) {
  FakeDevice::State device{.capacity = 100 * kMiB};
  {
    CachingAllocator allocator(std::make_unique<FakeDevice>(device));
    for (const std::size_t size : {kMiB, 9 * kMiB, 30 * kMiB}) {
      const ScratchMemory scratch(allocator, size);
      EXPECT_NE(scratch.get(), nullptr);
    }
    EXPECT_GT(device.used, 0U);
  }
  EXPECT_EQ(device.used, 0U);
}

TEST(RecordingPoolsTest, GiveWhatARecordingUsedToNobodyButTheNextRecording) {
  FakeDevice::State device{.capacity = 64 * kMiB};
  RecordingPools pools(std::make_unique<FakeDevice>(device),
                       std::make_unique<FakeDevice>(device, std::uintptr_t{1} << 41));
  void* before = pools.allocate(kMiB);
  pools.begin_recording();
  void* during = pools.allocate(kMiB);
  pools.deallocate(before, kMiB);  // by its address, to the pool that it is from
  void* kept = pools.allocate(2 * kMiB);
  pools.deallocate(during, kMiB);
  EXPECT_EQ(pools.allocate(kMiB), during) << "within a recording memory is used again";
  pools.deallocate(during, kMiB);
  pools.end_recording();

  pools.deallocate(kept, 2 * kMiB);
  EXPECT_EQ(pools.stats().in_use, 0U);
  EXPECT_EQ(pools.stats().peak, 3 * kMiB) << "what it takes to repeat the recording";
  void* after = pools.allocate(kMiB);
  EXPECT_EQ(after, before);
  pools.reset_peak();
  EXPECT_EQ(pools.stats().peak, 4 * kMiB);
  pools.begin_recording();
  void* again = pools.allocate(kMiB);
  EXPECT_EQ(again, during);
  pools.deallocate(again, kMiB);
  pools.end_recording();
  pools.deallocate(after, kMiB);
}

TEST(SystemMemory, GivesNoMoreThanIsAvailable) {
  struct sysinfo info {};
  ASSERT_EQ(sysinfo(&info), 0);
  // Some is always in use. By default the system would grant this all the same.
  const std::size_t all = (info.totalram + info.totalswap) * info.mem_unit - 16 * kMiB;
  EXPECT_EQ(cpu::make_system_memory()->obtain(all), nullptr);
}

class PoolsOnADevice : public testing::Test {
 protected:
  FakeDevice::State device_{.capacity = 40 * kMiB};
  RecordingPools pools_{std::make_unique<FakeDevice>(device_),
                        std::make_unique<FakeDevice>(device_, std::uintptr_t{1} << 41)};
};

TEST_F(PoolsOnADevice, KeepWhatARecordingUsedWhenThereIsNoMemoryForTheNext) {
  pools_.begin_recording();
  void* first = pools_.allocate(16 * kMiB);
  pools_.deallocate(first, 16 * kMiB);
  EXPECT_THROW(pools_.allocate(30 * kMiB), Error) << "within the recording";
  pools_.end_recording();
  pools_.begin_recording();
  EXPECT_THROW(pools_.allocate(30 * kMiB), Error) << "in the next one";
  EXPECT_EQ(device_.used, 16 * kMiB);
  void* again = pools_.allocate(16 * kMiB);
  EXPECT_EQ(again, first);
  pools_.deallocate(again, 16 * kMiB);
  pools_.end_recording();
}

TEST_F(PoolsOnADevice, MakeRoomForARecordingOfWhatNobodyUsesOutsideIt) {
  void* kept = pools_.allocate(8 * kMiB);
  void* unused = pools_.allocate(16 * kMiB);
  pools_.begin_recording();
  void* first = pools_.allocate(10 * kMiB);
  pools_.deallocate(unused, 16 * kMiB);
  pools_.deallocate(first, 10 * kMiB);
  void* second = pools_.allocate(20 * kMiB);
  EXPECT_EQ(device_.used, (8 + 10 + 20) * kMiB);
  pools_.deallocate(second, 20 * kMiB);
  pools_.end_recording();
  pools_.deallocate(kept, 8 * kMiB);
}

TEST_F(PoolsOnADevice, HandSegmentsThatNobodyUsesOverToARecording) {
  device_.capacity = 80 * kMiB;
  void* kept = pools_.allocate(6 * kMiB);
  void* large = pools_.allocate(20 * kMiB);
  void* small = pools_.allocate(10 * kMiB);
  pools_.deallocate(large, 20 * kMiB);
  pools_.deallocate(small, 10 * kMiB);
  const std::uint64_t before = pools_.stats().allocations;
  pools_.begin_recording();
  EXPECT_EQ(pools_.allocate(9 * kMiB), small) << "the smallest that will do";
  void* part = pools_.allocate(kMiB);
  EXPECT_EQ(part, static_cast<std::byte*>(small) + 9 * kMiB) << "of the same";
  EXPECT_EQ(pools_.allocate(12 * kMiB), large);
  EXPECT_EQ(pools_.stats().allocations, before) << "the device was asked for nothing";
  EXPECT_EQ(pools_.stats().reserved, device_.used);
  pools_.deallocate(part, kMiB);
  pools_.deallocate(small, 9 * kMiB);
  pools_.deallocate(large, 12 * kMiB);
  pools_.add_recording();
  pools_.end_recording();

  void* other = pools_.allocate(kMiB);
  EXPECT_NE(other, small) << "they are the recording's from now on";
  EXPECT_NE(other, large);
  pools_.deallocate(other, kMiB);
  pools_.deallocate(kept, 6 * kMiB);
}

TEST_F(PoolsOnADevice, MakeRoomBeforeARecordingWhereThereMayBeTooLittle) {
  void* kept = pools_.allocate(8 * kMiB);
  void* unused = pools_.allocate(20 * kMiB);
  pools_.deallocate(unused, 20 * kMiB);
  ASSERT_EQ(device_.used, 28 * kMiB);
  pools_.begin_recording();
  EXPECT_EQ(device_.used, 8 * kMiB) << "12 MiB were left, where steps have taken 20";
  pools_.end_recording();
  pools_.deallocate(kept, 8 * kMiB);
}

TEST_F(PoolsOnADevice, MakeNoRoomBeforeARecordingWhereThereIsEnough) {
  void* unused = pools_.allocate(20 * kMiB);
  pools_.deallocate(unused, 20 * kMiB);
  pools_.begin_recording();
  EXPECT_EQ(device_.used, 20 * kMiB);
  pools_.end_recording();
}

TEST_F(PoolsOnADevice, KeepWhatCannotBeGivenBack) {
  void* unused = pools_.allocate(24 * kMiB);
  pools_.deallocate(unused, 24 * kMiB);
  device_.refuses = true;
  EXPECT_THROW(pools_.allocate(32 * kMiB), Error);
  EXPECT_EQ(pools_.stats().reserved, 24 * kMiB);
  void* again = pools_.allocate(24 * kMiB);
  EXPECT_EQ(again, unused);
  pools_.deallocate(again, 24 * kMiB);
  device_.refuses = false;
  void* larger = pools_.allocate(32 * kMiB);
  EXPECT_EQ(device_.used, 32 * kMiB);
  pools_.deallocate(larger, 32 * kMiB);
}

TEST_F(PoolsOnADevice, GiveBackWhatAFailedRecordingHadTakenOver) {
  void* unused = pools_.allocate(16 * kMiB);
  pools_.deallocate(unused, 16 * kMiB);
  pools_.begin_recording();
  void* taken = pools_.allocate(10 * kMiB);
  EXPECT_EQ(taken, unused);
  pools_.deallocate(taken, 10 * kMiB);
  pools_.end_recording();
  pools_.give_up_recording();
  EXPECT_EQ(device_.used, 0U);
}

}  // namespace
}  // namespace dlaunch::nn
