// StallWatch: notices when no rank makes progress any more. Judged only while at least one rank
// waits in a collective, for a message or for the store; a job whose ranks only compute is left
// alone. Belongs to the event loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/hang/activity_board.h"

namespace dlaunch {

class StallWatch {
 public:
  /// Calls `on_stall` once for every standstill of `limit` or longer. A limit of 0: never.
  StallWatch(EventLoop& loop, const ActivityBoard& board, std::chrono::nanoseconds limit,
             std::function<void(std::chrono::nanoseconds since)> on_stall);
  ~StallWatch();
  /// Somebody else has told of the present standstill.
  void hold() { told_ = true; }
  /// The user has stopped the job (Ctrl-Z), or lets it go on: in between he knows that nothing
  /// moves.
  void set_stopped(bool stopped) { stopped_ = stopped; }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  void look();

  EventLoop& loop_;
  const ActivityBoard& board_;
  const std::chrono::nanoseconds limit_;
  const std::function<void(std::chrono::nanoseconds)> on_stall_;
  EventLoop::TimerId timer_ = 0;
  std::vector<std::uint64_t> progress_;  // by rank, when last looked at
  EventLoop::Clock::time_point changed_ = EventLoop::Clock::now();
  bool told_ = false;
  bool stopped_ = false;
};

}  // namespace dlaunch
