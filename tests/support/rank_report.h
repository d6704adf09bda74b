// What a rank of a multi-process test tells the test's parent: one JSON object per line, appended
// to a file that all ranks share. Appends of one write() are atomic, so the lines of different
// ranks stand in the order in which things happened.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch::testing {

struct RankEvent {
  enum class Kind { kStarted, kFinished, kFailure, kFatalFailure, kSkip };
  int rank = 0;
  Kind kind = Kind::kStarted;
  std::string file;  // of failures and skips; line is -1 and file empty if unknown
  int line = -1;
  std::string message;
};

/// Appends one event to the open file `descriptor`. Aborts if it cannot be written: a failure that
/// nobody hears of must not pass for success.
void write_event(int descriptor, const RankEvent& event);

/// All events in a report, in order. A line cut short (its rank was killed) is left out.
std::vector<RankEvent> parse_events(std::string_view report);

/// Hands every failure and skip of the running test to write_event, and then those of what ends
/// after it (TearDownTestSuite, environments). Any thread, as GoogleTest calls one at a time.
class ReportingListener : public ::testing::EmptyTestEventListener {
 public:
  /// Does not own the descriptor.
  ReportingListener(int descriptor, int rank, const ::testing::TestInfo& test)
      : descriptor_(descriptor), rank_(rank), test_(test) {}
  /// What has been recorded and not told yet: before there was this listener, or when one before
  /// it threw.
  void tell();
  /// Skips the rest of the test, of which the parent is not to know.
  void skip_silently();
  void OnTestPartResult(const ::testing::TestPartResult& result) override;
  void OnTestEnd(const ::testing::TestInfo& /*unused*/) override { during_ = During::kNoTest; }
  void OnTestStart(const ::testing::TestInfo& /*unused*/) override { during_ = During::kAnother; }
  /// The rank has finished, and exits with 0: with another code dlaunch would end the other ranks
  /// before they can tell their failures.
  void OnTestProgramEnd(const ::testing::UnitTest& /*unused*/) override { finish(); }
  [[noreturn]] void finish() const;

 private:
  void write(const ::testing::TestPartResult& result) const;

  int descriptor_;
  int rank_;
  const ::testing::TestInfo& test_;
  int told_ = 0;  // of the test's results
  bool silent_ = false;
  enum class During { kTest, kNoTest, kAnother } during_ = During::kTest;
};

}  // namespace dlaunch::testing
