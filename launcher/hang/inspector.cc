#include "launcher/hang/inspector.h"

#include <utility>

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
    // A shell may stand between dlaunch and the program.
    if (rank.shown.process != 0) rank.pid = rank.shown.process;
    rank.state = std::string(process_state(rank.pid));
    observed.push_back(std::move(rank));
  }
  return observed;
}

void Inspector::collect_stacks(const std::vector<ObservedRank>& ranks, Sink sink) {
  std::vector<StackCollector::Process> processes;
  for (const ObservedRank& rank : ranks) {
    // A stopped process cannot print its stack itself, and would do so when it goes on.
    const bool can_print = rank.state != "stopped by a signal";
    processes.push_back({.rank = rank.rank,
                         .pid = rank.pid,
                         .stack_signal = can_print ? rank.shown.stack_signal : 0});
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
