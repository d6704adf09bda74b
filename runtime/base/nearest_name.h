// nearest_name: what somebody who misspelt a name most likely meant. Any thread may call it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// The candidate nearest to `word` by edit distance, or empty if none is near enough to be meant.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace dlaunch
