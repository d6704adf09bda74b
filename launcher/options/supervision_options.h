// What the user asked of the supervision: when a job ends, and how.
#pragma once

#include <chrono>
#include <optional>

namespace CLI {
class App;
}

namespace dlaunch {

struct SupervisionOptions {
  std::optional<std::chrono::nanoseconds> timeout;  // of the whole job
  std::chrono::nanoseconds grace = std::chrono::seconds(5);
};

void add_supervision_options(CLI::App& app, SupervisionOptions& options);

}  // namespace dlaunch
