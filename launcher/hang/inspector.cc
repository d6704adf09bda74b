#include "launcher/hang/inspector.h"

#include <csignal>
#include <utility>

#include "launcher/supervision/descendants.h"
#include "runtime/base/process_stat.h"

namespace dlaunch {
void Inspector::look_at(const Supervisor* supervisor, const ActivityBoard* board) {
  for (const Collection& collection : std::exchange(collections_, {})) {
    collection.sink({"no stacks: the ranks have ended"});
  }
  supervisor_ = supervisor;
  board_ = board;
}

std::vector<ObservedRank> Inspector::observe() const {
  std::vector<ObservedRank> observed;
  if (supervisor_ == nullptr) return observed;
  const std::vector<RankOutcome>& ranks = supervisor_->outcome().ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ObservedRank rank{.rank = ranks[i].rank,
                      .pid = ranks[i].pid,
                      .running = ranks[i].running,
                      .state = {},
                      .shown = board_->read(static_cast<int>(i))};
    // A shell may stand between dlaunch and the program. But a program may write anything there.
    if (is_descendant(rank.shown.process)) rank.pid = rank.shown.process;
    rank.state = std::string(process_state(rank.pid));
    observed.push_back(std::move(rank));
  }
  return observed;
}

void Inspector::collect_stacks(const std::vector<ObservedRank>& ranks, Sink sink) {
  std::vector<StackCollector::Process> processes;
  for (const ObservedRank& rank : ranks) {
    // A stopped process cannot print its stack itself, and would do so when it goes on. No other
    // signal than our runtime's is sent, whatever a program asks for.
    const bool can_print = rank.state != "stopped by a signal" && rank.shown.stack_signal == SIGURG;
    processes.push_back(
        {.rank = rank.rank, .pid = rank.pid, .stack_signal = can_print ? SIGURG : 0});
  }
  const auto own = collections_.insert(collections_.end(), Collection{std::move(sink), nullptr});
  own->collector =
      std::make_unique<StackCollector>(loop_, signal_mask_, std::move(processes),
                                       [this, own](const std::vector<std::string>& lines) {
                                         const Sink out = std::move(own->sink);
                                         collections_.erase(own);
                                         out(lines);
                                       });
}

}  // namespace dlaunch
