// The smallest distributed program: connects the world, makes one barrier, ends. What it takes from
// start to end is the price of starting up (tools/bench/compare_launchers).
#include "runtime/base/exit_codes.h"
#include "runtime/base/run_program.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

int main() {
  return dlaunch::run_program("first_barrier", dlaunch::kExitCommunication, [] {
    const auto world = dlaunch::connect_world().value_or_throw();
    dlaunch::throw_if_error(world->barrier());
    return dlaunch::kExitOk;
  });
}
