// RestartPolicy: whether a job whose rank failed is started once more, and when.
//
// Only a job that once got ready, as what fails before that would fail again, and none that has
// ended after a signal of the user, which the exit code of its rank tells. Delays double.
#pragma once

#include <chrono>
#include <string>

#include "launcher/failure/outcome.h"

namespace dlaunch {

/// Before the restart that `before` others came before: twice as long each time, at most a minute,
/// or always `first` if that is longer.
std::chrono::nanoseconds restart_delay(std::chrono::nanoseconds first, int before);

/// What the user is told where a job would have been started again.
inline constexpr const char* kNoRestartBesideLeftovers =
    "dlaunch: no restart: some processes could not be killed";

class RestartPolicy {
 public:
  struct Options {
    int most = 0;
    std::chrono::nanoseconds delay = std::chrono::seconds(1);  // before the first restart
  };
  struct Decision {
    bool restart = false;
    std::chrono::nanoseconds delay{};
    std::string line;  // for the user; empty: nothing to say
  };

  explicit RestartPolicy(const Options& options) : options_(options) {}

  /// To be called after every attempt, once.
  Decision after(const AttemptOutcome& attempt);

 private:
  const Options options_;
  bool ever_ready_ = false;
};

}  // namespace dlaunch
