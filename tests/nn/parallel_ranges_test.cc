// How loops are shared by OpenMP's threads.
#include "nn/cpu/parallel.h"

#include <omp.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch::nn::cpu {
namespace {

using Ranges = std::set<std::pair<std::int64_t, std::int64_t>>;

class ParallelRanges : public ::testing::Test {
 protected:
  void SetUp() override { omp_set_num_threads(kThreads); }
  void TearDown() override { omp_set_num_threads(before_); }

  Ranges of(std::int64_t count, std::int64_t grain) {
    Ranges ranges;
    parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
      const std::scoped_lock lock(mutex_);
      ranges.emplace(begin, end);
      threads_.insert(::gettid());
    });
    return ranges;
  }

  static constexpr int kThreads = 5;
  const int before_ = omp_get_max_threads();
  std::mutex mutex_;
  std::set<pid_t> threads_;  // that have worked
};

TEST_F(ParallelRanges, CoverAllAndAreNoShorterThanTheGrain) {
  EXPECT_EQ(of(0, 10), Ranges{});
  EXPECT_EQ(of(10, 10), (Ranges{{0, 10}}));
  EXPECT_EQ(of(11, 10), (Ranges{{0, 6}, {6, 11}}));
  EXPECT_EQ(of(100, 10), (Ranges{{0, 20}, {20, 40}, {40, 60}, {60, 80}, {80, 100}}));
  EXPECT_EQ(of(6, 1), (Ranges{{0, 2}, {2, 4}, {4, 6}})) << "the last threads have nothing to do";
}

TEST_F(ParallelRanges, AreOfTheSameThreadsHoweverManyTheyAre) {
  for (int turn = 0; turn < 100; ++turn) {
    of(50, 10);
    of(20, 10);
    of(5, 10);
  }
  EXPECT_LE(threads_.size(), static_cast<std::size_t>(kThreads));
}

TEST_F(ParallelRanges, ThrowWhatOneOfThemThrew) {
  const auto fail_at = [](std::int64_t where) {
    parallel_ranges(50, 10, [&](std::int64_t begin, std::int64_t /*end*/) {
      if (begin == where) throw std::runtime_error("here");
    });
  };
  for (const std::int64_t begin : {0, 10, 40}) EXPECT_THROW(fail_at(begin), std::runtime_error);
}

}  // namespace
}  // namespace dlaunch::nn::cpu
