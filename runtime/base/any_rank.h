// The peer of a receive that takes a message of any rank.
#pragma once

namespace dlaunch {

inline constexpr int kAnyRank = -1;

}  // namespace dlaunch
