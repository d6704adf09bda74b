// Collectives in the background, and communicators of some of the ranks.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <span>
#include <vector>

#include <dlaunch/runtime/base/run_rank.h>
#include <dlaunch/runtime/comm/communicator.h>

int main() {
  return dlaunch::run_rank("overlap", [] {
    const auto world = dlaunch::connect_world().value_or_throw();
    constexpr std::size_t kCount = 1000;

    // In memory from allocate() collectives are fastest: ranks of a host read it without a copy.
    const auto memory = world->allocate(2 * kCount * sizeof(double)).value_or_throw();
    const std::span<double> first = memory.as<double>().first(kCount);
    const std::span<double> second = memory.as<double>().last(kCount);

    // The first half is on its way while the second is computed, as gradients are in training.
    std::ranges::fill(first, world->rank() + 1.0);
    dlaunch::Work sums_of_first = world->start_all_reduce(first);
    std::ranges::fill(second, 2 * (world->rank() + 1.0));
    dlaunch::Work sums_of_second = world->start_all_reduce(second);
    dlaunch::throw_if_error(sums_of_first.wait());
    const double first_total = std::accumulate(first.begin(), first.end(), 0.0);
    dlaunch::throw_if_error(sums_of_second.wait());
    const double second_total = std::accumulate(second.begin(), second.end(), 0.0);

    // The ranks with the same remainder form a communicator of their own, ordered by rank.
    const auto part = world->split(world->rank() % 2, world->rank()).value_or_throw();
    std::vector<int> sum{world->rank()};
    dlaunch::throw_if_error(part->all_reduce(sum));
    if (world->rank() == 0) {
      std::printf("sum %.0f, then %.0f; of the even ranks %d\n", first_total, second_total, sum[0]);
    }
    return dlaunch::kExitOk;
  });
}
