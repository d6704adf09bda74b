// The smallest distributed program: connects the world, makes one barrier, ends. What it takes from
// start to end is the price of starting up (tools/bench/compare_launchers).
#include <cstdio>
#include <cstring>

#include "runtime/base/run_rank.h"
#include "runtime/comm/communicator.h"

int main(int argc, char** argv) {
  if (argc > 1) {
    const bool help = std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0;
    std::fputs("usage: dlaunch --nproc N first_barrier\n", help ? stdout : stderr);
    return help ? dlaunch::kExitOk : dlaunch::kExitUsage;
  }
  return dlaunch::run_rank("first_barrier", [] {
    const auto world = dlaunch::connect_world().value_or_throw();
    dlaunch::throw_if_error(world->barrier());
    return dlaunch::kExitOk;
  });
}
