// Words for error messages about waiting.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace dlaunch {

/// "rank 3", "ranks 1, 4 and 7", "ranks 1, 2, 3, ... (250 in all)"; "its own work" for none.
std::string list_of_ranks(const std::vector<int>& ranks);

/// "1.2 s".
std::string in_seconds(std::chrono::nanoseconds duration);

}  // namespace dlaunch
