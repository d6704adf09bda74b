#include "launcher/doctor/doctor.h"

#include <cstdio>

#include "launcher/options/command_line.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/run_program.h"

namespace dlaunch {

int doctor_command(int argc, const char* const* argv) {
  if (asks_for_help(argc, argv)) {
    std::fputs(
        "Looks at this machine and says what a job would miss, and what to do about it.\n"
        "Usage: dlaunch doctor\n",
        stdout);
    return kExitOk;
  }
  if (argc > 1) {
    std::fprintf(stderr, "dlaunch: doctor takes no arguments, but was given '%s'\n", argv[1]);
    return kLauncherFailure;
  }
  int warnings = 0;
  for (const auto examine : {examine_resources, examine_network, examine_machine}) {
    for (const Finding& finding : examine()) {
      const char* const grade = finding.good ? "ok" : finding.minor ? "note" : "warn";
      std::printf("%-4s  %s: %s\n", grade, finding.subject.c_str(), finding.text.c_str());
      if (finding.good) continue;
      std::printf("      -> %s\n", finding.advice.c_str());
      if (!finding.minor) ++warnings;
    }
  }
  if (warnings > 0) std::printf("%d %s\n", warnings, warnings == 1 ? "warning" : "warnings");
  flush_output();  // here, since warnings are an answer and no failure
  return warnings == 0 ? kExitOk : kExitFailure;
}

}  // namespace dlaunch
