// What the user asked of the supervision: when a job ends, and how.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace dlaunch {

struct SupervisionOptions {
  std::optional<std::chrono::nanoseconds> timeout;  // of the whole job
  std::chrono::nanoseconds grace = std::chrono::seconds(5);
  int max_restarts = 0;
  std::chrono::nanoseconds restart_delay = std::chrono::seconds(1);  // doubles each time
  std::chrono::nanoseconds ready_after = std::chrono::seconds(10);   // see RestartPolicy
  std::chrono::nanoseconds stall_after = std::chrono::seconds(120);  // 0: never
  std::string report;  // file of the JSON report; empty: none
};

void add_supervision_options(CLI::App& app, SupervisionOptions& options);

}  // namespace dlaunch
