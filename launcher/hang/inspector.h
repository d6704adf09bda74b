// Inspector: tells what the ranks of the running attempt are doing, and shows their stacks. For
// hang reports and for `dlaunch status`. Belongs to the event loop's thread.
#pragma once

#include <signal.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/hang/activity_board.h"
#include "launcher/hang/hang_report.h"
#include "launcher/hang/stack_collector.h"
#include "launcher/supervision/supervisor.h"

namespace dlaunch {

class Inspector {
 public:
  using Sink = std::function<void(const std::vector<std::string>& lines)>;

  /// `signal_mask`: for debuggers.
  Inspector(EventLoop& loop, const sigset_t& signal_mask)
      : loop_(loop), signal_mask_(signal_mask) {}

  /// The attempt to look at; both stay until they are replaced. nullptr: none. Whoever waits for
  /// stacks is told that they will not come.
  void look_at(const Supervisor* supervisor, const ActivityBoard* board);

  /// What the ranks are doing; empty between attempts.
  std::vector<ObservedRank> observe() const;

  /// The stacks of these ranks, in this order; once, later.
  void collect_stacks(const std::vector<ObservedRank>& ranks, Sink sink);

 private:
  struct Collection {
    Sink sink;
    std::unique_ptr<StackCollector> collector;
  };

  EventLoop& loop_;
  const sigset_t signal_mask_;
  const Supervisor* supervisor_ = nullptr;
  const ActivityBoard* board_ = nullptr;
  std::list<Collection> collections_;
};

}  // namespace dlaunch
