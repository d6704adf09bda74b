#include <cstdio>
#include <vector>

#include <dlaunch/runtime/comm/communicator.h>

int main() {
  auto world = dlaunch::connect_world().value_or_throw();
  std::vector<int> sum{world->rank()};
  dlaunch::throw_if_error(world->all_reduce(sum));
  if (world->rank() == 0) std::printf("the ranks add up to %d\n", sum[0]);
}
