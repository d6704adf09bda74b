#include "launcher/ranks/rank_plans.h"

#include <cstddef>

#include <unistd.h>

#include "launcher/ranks/binding.h"

namespace dlaunch {

std::vector<RankStart> plan_ranks(const JobOptions& options, const JobIdentity& job,
                                  const StandardInput& input) {
  const Shares shares = bind_ranks(options.placement.bind, job.ranks);
  std::vector<RankStart> starts;
  // The first rank that is shown may draw progress bars, see OutputRelay.
  bool terminal = isatty(STDERR_FILENO) != 0;
  for (int local_rank = 0; local_rank < job.ranks; ++local_rank) {
    const int rank = job.first_rank + local_rank;
    const auto index = static_cast<std::size_t>(local_rank);
    starts.push_back({.rank = rank,
                      .environment = rank_environment(job, local_rank, environ),
                      .standard_input = input.of(rank),
                      .captured_output = options.output.captures_output(rank),
                      .error_terminal = terminal && options.output.shows(rank),
                      .threads = shares.empty() ? std::vector<int>() : shares[index]});
    if (options.output.shows(rank)) terminal = false;
  }
  return starts;
}

}  // namespace dlaunch
