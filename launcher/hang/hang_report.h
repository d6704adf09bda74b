// The words of a hang report: which ranks are in which collective or store wait, since when, and
// who is missing. Pure functions of what was seen.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hang/activity_board.h"

namespace dlaunch {

/// A rank at the moment of the report.
struct ObservedRank {
  int rank = 0;
  pid_t pid = -1;  // of the process to look at: the one that publishes, or the one that was started
  bool running = true;
  std::string state;  // see process_state
  ShownRank shown;
};

/// How the answer of a node begins that has nothing to report.
inline constexpr std::string_view kNoRanksRun = "no ranks are running";

/// Lines without a prefix. `now` is on the clock of the activities; `world` the number of ranks of
/// the whole job.
std::vector<std::string> describe_ranks(const std::vector<ObservedRank>& ranks, int world,
                                        Deadline::Clock::time_point now);

/// Those whose stacks are worth most first: the ranks that others wait for, then one of each group
/// that waits in the same place, then the rest. Only running ones.
std::vector<ObservedRank> by_interest(const std::vector<ObservedRank>& ranks, int world);

}  // namespace dlaunch
