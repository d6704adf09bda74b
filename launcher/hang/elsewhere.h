// Elsewhere: the ranks of a job's other nodes, as a hang report sees them. Belongs to the event
// loop's thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/hang/hang_report.h"

namespace dlaunch {

/// What one of them answers.
struct SeenElsewhere {
  int node = 0;
  bool answers = false;  // it did, in time
  bool ended = false;    // its ranks have
  std::vector<ObservedRank> ranks;
  std::vector<std::string> lines;  // of stacks
};

/// Asks all of them what their ranks are doing or, if ranks are named, for the stacks of those.
/// `stalled`: because nothing moves. `take` is called once, later:
/// after two seconds at most, or two minutes if it is about stacks, and as much for each question
/// that was asked before it.
using Elsewhere = std::function<void(const std::vector<int>& stacks_of, bool stalled,
                                     std::function<void(const std::vector<SeenElsewhere>&)> take)>;

}  // namespace dlaunch
