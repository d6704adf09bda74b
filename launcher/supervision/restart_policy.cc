#include "launcher/supervision/restart_policy.h"

#include <algorithm>

#include "launcher/failure/report.h"
#include "launcher/supervision/signals.h"

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kLongestDelay = std::chrono::minutes(1);

// The signal, passed on, after which the job has ended; 0: it was none. A program that a signal
// asks to end in good order says so by its exit code, as a shell would.
int heeded_signal(const AttemptOutcome& attempt) {
  const int signal = attempt.failure ? attempt.failure->exit_code - 128 : 0;
  return attempt.passed_on.contains(signal) ? signal : 0;
}

}  // namespace

std::chrono::nanoseconds restart_delay(std::chrono::nanoseconds first, int before) {
  if (first >= kLongestDelay || first.count() == 0) return first;
  std::chrono::nanoseconds delay = first;
  for (int i = 0; i < before && delay < kLongestDelay; ++i) delay *= 2;
  return std::min(delay, kLongestDelay);
}

RestartPolicy::Decision RestartPolicy::after(const AttemptOutcome& attempt) {
  ever_ready_ = ever_ready_ || attempt.got_ready;
  if (attempt.cause != AttemptOutcome::Cause::kRankFailed || options_.most == 0) return {};
  const std::string used = std::to_string(attempt.number) + " of " + std::to_string(options_.most);
  if (attempt.number >= options_.most) {
    return {.line = "dlaunch: no restart: " + used + " restarts used"};
  }
  if (const int signal = heeded_signal(attempt); signal != 0) {
    return {.line = "dlaunch: no restart: the job has ended after " + signal_name(signal) +
                    ", which was passed on"};
  }
  if (!ever_ready_) {
    return {.line =
                "dlaunch: no restart: the job never got ready (all ranks connected, or up for "
                "--ready-after); " +
                used + " restarts used"};
  }
  const auto delay = restart_delay(options_.delay, attempt.number);
  return {.restart = true,
          .delay = delay,
          .line = "dlaunch: restart " + std::to_string(attempt.number + 1) + " of " +
                  std::to_string(options_.most) + " in " + seconds(delay)};
}

}  // namespace dlaunch
