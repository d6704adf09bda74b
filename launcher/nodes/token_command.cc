#include "launcher/nodes/token_command.h"

#include <cstdio>

#include "launcher/options/command_line.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/run_program.h"
#include "runtime/base/token.h"

namespace dlaunch {

int token_command(int argc, const char* const* argv) {
  if (asks_for_help(argc, argv)) {
    std::fputs(
        "Prints a new secret, which all nodes of a job must have:\n"
        "  umask 077; dlaunch token > job.token      once; then copy the file to all nodes\n"
        "  dlaunch --nnodes 2 --rdzv-endpoint HOST:PORT --token-file job.token ...\n"
        "Usage: dlaunch token\n",
        stdout);
    return kExitOk;
  }
  if (argc > 1) {
    std::fputs("dlaunch: token takes no arguments; try dlaunch token --help\n", stderr);
    return kLauncherFailure;
  }
  std::printf("%s\n", token_to_hex(make_token()).c_str());
  flush_output();
  return kExitOk;
}

}  // namespace dlaunch
