// What a rank publishes of itself, and when it does without.
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "runtime/base/activity.h"
#include "runtime/base/descriptor.h"

namespace dlaunch {
namespace {

// Stands in for dlaunch: the memory of two ranks.
class ActivityTest : public ::testing::Test {
 protected:
  ActivityTest() {
    EXPECT_EQ(ftruncate(file_.get(), 2 * sizeof(ActivityPage)), 0);
    void* memory =
        mmap(nullptr, 2 * sizeof(ActivityPage), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    pages_ = static_cast<ActivityPage*>(memory);
    for (int rank = 0; rank < 2; ++rank) pages_[rank].magic.store(ActivityPage::kMagic);
  }
  ~ActivityTest() override { munmap(pages_, 2 * sizeof(ActivityPage)); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

  Descriptor file_{memfd_create("activity-test", MFD_CLOEXEC)};
  ActivityPage* pages_ = nullptr;
};

TEST_F(ActivityTest, GoesToThePageOfItsRank) {
  const auto activity = Activity::open(path(), 1);
  ASSERT_NE(activity, nullptr);
  EXPECT_EQ(pages_[0].process.load(), 0);
  EXPECT_EQ(pages_[1].process.load(), getpid());
  EXPECT_EQ(pages_[1].joins_world.load(), 0);
  activity->set_joins_world();
  EXPECT_EQ(pages_[1].joins_world.load(), 1);
  EXPECT_EQ(pages_[1].ready.load(), 0);
  activity->set_ready();
  EXPECT_NE(pages_[1].ready.load(), 0);
  EXPECT_FALSE(activity->job_has_failed());
  pages_[1].job_failed.store(1);
  EXPECT_TRUE(activity->job_has_failed());
}

TEST_F(ActivityTest, TellsWhatBeginsAndThatItHasEnded) {
  auto reporter = Activity::open(path(), 0)->reporter("world/1", 2, 4);
  const ActivitySlot& slot = pages_[0].slots[0];
  EXPECT_EQ(slot.lane.load(), 2);
  EXPECT_EQ(slot.members.load(), 4);
  reporter.begin({.operation = "reduce_scatter",
                  .sequence = 7,
                  .dtype = DType::kF64,
                  .count = 3,
                  .bytes = 24});
  EXPECT_EQ(slot.kind.load(), ActivityKind::kCollective);
  EXPECT_EQ(slot.sequence.load(), 7U);
  EXPECT_EQ(slot.bytes.load(), 24U);
  EXPECT_EQ(slot.since.load(), 0);
  EXPECT_EQ(slot.version.load() % 2, 0U);
  reporter.waits(Deadline::Clock::now(), Deadline::Clock::now());
  EXPECT_NE(slot.since.load(), 0);
  reporter.end();
  EXPECT_EQ(slot.kind.load(), ActivityKind::kNone);
  EXPECT_EQ(slot.sequence.load(), 7U);  // the last one
  reporter.begin({.kind = ActivityKind::kReceive, .tag = 3, .peer = 1});
  reporter.set_last("gather", 9);
  EXPECT_EQ(slot.kind.load(), ActivityKind::kReceive);
  EXPECT_EQ(slot.tag.load(), 3U);
  EXPECT_EQ(slot.sequence.load(), 9U);
}

TEST_F(ActivityTest, GivesASlotBackAndDoesWithoutWhenThereIsNone) {
  const auto activity = Activity::open(path(), 0);
  std::vector<ActivityReporter> reporters;
  for (std::size_t i = 0; i < ActivityPage::kSlots; ++i) {
    reporters.push_back(activity->reporter("part", 0, 2));
    EXPECT_TRUE(reporters.back().published());
  }
  auto one_too_many = activity->reporter("part", 0, 2);
  EXPECT_FALSE(one_too_many.published());
  one_too_many.begin({.operation = "barrier"});
  one_too_many.end();
  reporters.pop_back();
  EXPECT_TRUE(activity->reporter("part", 0, 2).published());
}

TEST_F(ActivityTest, IsNotPublishedWhereThereIsNoPlaceForIt) {
  EXPECT_EQ(Activity::open("", 0), nullptr);
  EXPECT_EQ(Activity::open("/no/such/file", 0), nullptr);
  EXPECT_EQ(Activity::open("/proc/self/exe", 0), nullptr);
  EXPECT_EQ(Activity::open(path(), 2), nullptr);
  EXPECT_EQ(Activity::open(path(), -1), nullptr);
  pages_[0].magic.store(1);  // another version's
  EXPECT_EQ(Activity::open(path(), 0), nullptr);
}

}  // namespace
}  // namespace dlaunch
