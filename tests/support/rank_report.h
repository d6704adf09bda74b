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

/// Hands every failure and skip of the running test to write_event. Any thread.
class ReportingListener : public ::testing::EmptyTestEventListener {
 public:
  /// Does not own the descriptor.
  ReportingListener(int descriptor, int rank) : descriptor_(descriptor), rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override;

 private:
  int descriptor_;
  int rank_;
};

}  // namespace dlaunch::testing
