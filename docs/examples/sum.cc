// The ranks add up their numbers.
#include <cstdio>
#include <vector>

#include <dlaunch/runtime/base/run_rank.h>
#include <dlaunch/runtime/comm/communicator.h>

int main() {
  return dlaunch::run_rank("sum", [] {
    const auto world = dlaunch::connect_world().value_or_throw();  // all ranks of the job
    std::vector<int> sum{world->rank()};
    dlaunch::throw_if_error(world->all_reduce(sum));  // in place, the same result on every rank
    if (world->rank() == 0) std::printf("the ranks add up to %d\n", sum[0]);
    return dlaunch::kExitOk;
  });
}
