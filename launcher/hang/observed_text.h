// What a node saw of its ranks, as text for another node's hang report. Points in time become ages,
// because the clocks of two machines have nothing in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/hang/hang_report.h"
#include "runtime/base/status.h"

namespace dlaunch {

std::string serialize(const std::vector<ObservedRank>& ranks, Deadline::Clock::time_point now);

/// kInvalidArgument if the text is none, or a number in it is out of range.
Result<std::vector<ObservedRank>> parse_observed(std::string_view text,
                                                 Deadline::Clock::time_point now);

}  // namespace dlaunch
