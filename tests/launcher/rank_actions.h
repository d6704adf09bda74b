// The command line of the tests' ranks: what each of them does, one after the other.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

namespace dlaunch::testing {

/// This rank's number; "-" outside of a job.
inline std::string own_rank() {
  const char* rank = std::getenv("RANK");  // NOLINT(concurrency-mt-unsafe): one thread
  return rank == nullptr ? "-" : rank;
}

/// Calls act(action, value) for each argument "action=value" that is meant for this rank: those
/// after only=K are for rank K alone, those after only=all for everybody again.
template <typename Act>
void for_each_action(int argc, const char* const* argv, Act&& act) {
  bool mine = true;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = std::min(argument.find('='), argument.size());
    const std::string action = argument.substr(0, equals);
    const std::string value = argument.substr(std::min(equals + 1, argument.size()));
    if (action == "only") {
      mine = value == "all" || value == own_rank();
    } else if (mine) {
      act(action, value);
    }
  }
}

}  // namespace dlaunch::testing
