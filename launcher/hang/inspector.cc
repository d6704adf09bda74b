#include "launcher/hang/inspector.h"

#include <algorithm>
#include <utility>

#include "launcher/hang/process_state.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostStacks = 16;

}  // namespace

void Inspector::look_at(const Supervisor* supervisor, const ActivityBoard* board, int world) {
  for (const Collection& collection : std::exchange(collections_, {})) {
    collection.sink({"no stacks: the ranks have ended"});
  }
  supervisor_ = supervisor;
  board_ = board;
  world_ = world;
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
    rank.state = process_state(rank.pid);
    observed.push_back(std::move(rank));
  }
  return observed;
}

std::vector<std::string> Inspector::activities() const {
  if (supervisor_ == nullptr) return {"no ranks are running; the job is about to be restarted"};
  return describe_ranks(observe(), world_, Deadline::Clock::now());
}

void Inspector::collect_stacks(Sink sink) {
  std::vector<StackCollector::Process> processes;
  const std::vector<ObservedRank> ranks = by_interest(observe(), world_);
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostStacks); ++i) {
    // A stopped process cannot print its stack itself, and would do so when it goes on.
    const bool can_print = ranks[i].state != "stopped by a signal";
    processes.push_back({.rank = ranks[i].rank,
                         .pid = ranks[i].pid,
                         .stack_signal = can_print ? ranks[i].shown.stack_signal : 0});
  }
  const std::size_t left_out = ranks.size() - processes.size();
  const auto own = collections_.insert(collections_.end(), Collection{std::move(sink), nullptr});
  own->collector = std::make_unique<StackCollector>(
      loop_, signal_mask_, std::move(processes),
      [this, left_out, own](std::vector<std::string> lines) {
        if (left_out > 0) {
          lines.push_back("the stacks of " + std::to_string(left_out) + " more ranks are left out");
        }
        const Sink out = std::move(own->sink);
        collections_.erase(own);
        out(lines);
      });
}

}  // namespace dlaunch
