#include "runtime/comm/words.h"

#include <cstdio>

namespace dlaunch {

std::string list_of_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 16;
  if (ranks.empty()) return "its own work";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMost) return text + ", ... (" + std::to_string(ranks.size()) + " in all)";
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string in_seconds(std::chrono::nanoseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace dlaunch
