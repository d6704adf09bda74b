// The post-mortem of an attempt: adds to what the supervisor saw what can be found out once all
// ranks have ended.
#pragma once

#include <chrono>
#include <string>

#include "launcher/failure/kernel_account.h"
#include "launcher/failure/outcome.h"
#include "launcher/hang/activity_board.h"
#include "launcher/output/output_relay.h"

namespace dlaunch {

struct PostMortemSources {
  const OutputRelay& relay;
  const ActivityBoard& board;
  KernelAccount& kernel;
  std::string host;
  std::string error_folder;              // see recorded_error.h
  EventLoop::Clock::time_point start;    // of the attempt
  std::chrono::nanoseconds ready_after;  // --ready-after
};

/// Last lines, start-up phases, whether the job got ready, and the story of the first failure.
void add_post_mortem(AttemptOutcome& attempt, const PostMortemSources& sources);

}  // namespace dlaunch
