#include "launcher/nodes/node_look.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/hang/observed_text.h"

namespace dlaunch {
namespace {

// A node that has not said in this time what its ranks are doing is called silent.
constexpr std::chrono::seconds kLookLimit{2};
// Debuggers look at one rank after the other.
constexpr std::chrono::minutes kElsewhereStackLimit{2};

SeenElsewhere from_record(int node, const std::optional<SeenRecord>& record) {
  SeenElsewhere seen{.node = node, .answers = record.has_value(), .ranks = {}, .lines = {}};
  if (!record) return seen;
  seen.ended = record->ended;
  seen.lines = record->lines;
  if (record->ranks.empty()) return seen;
  auto ranks = parse_observed(record->ranks, Deadline::Clock::now());
  seen.answers = ranks.ok();
  if (ranks.ok()) seen.ranks = *std::move(ranks);
  return seen;
}

}  // namespace

NodeLook::NodeLook(JobMonitor& monitor, NodeSession& session)
    : monitor_(monitor), session_(session) {
  monitor_.look_elsewhere([this](const auto& stacks_of, bool stalled, const auto& take) {
    ask(stacks_of, stalled, take);
  });
  session_.when_asked([this](const LookRecord& look) { answer(look); });
}

NodeLook::~NodeLook() {
  monitor_.look_elsewhere(nullptr);
  session_.when_asked(nullptr);
}

void NodeLook::ask(const std::vector<int>& stacks_of, bool stalled,
                   const std::function<void(const std::vector<SeenElsewhere>&)>& take) {
  const std::chrono::nanoseconds limit =
      stacks_of.empty() ? std::chrono::nanoseconds(kLookLimit) : kElsewhereStackLimit;
  session_.ask({.question = {}, .round = 0, .stalled = stalled, .stacks_of = stacks_of}, limit,
               [take](const std::vector<std::optional<SeenRecord>>& records) {
                 std::vector<SeenElsewhere> seen;
                 for (std::size_t node = 0; node < records.size(); ++node) {
                   seen.push_back(from_record(static_cast<int>(node), records[node]));
                 }
                 take(seen);
               });
}

void NodeLook::answer(const LookRecord& look) {
  if (look.stalled) monitor_.leave_stall_to_others();
  if (look.stacks_of.empty()) {
    return session_.answer(
        look, {.ranks = serialize(monitor_.observe(), Deadline::Clock::now()), .lines = {}});
  }
  const std::vector<ObservedRank> own = monitor_.observe();
  if (std::ranges::none_of(own, [&](const ObservedRank& rank) {
        return std::ranges::count(look.stacks_of, rank.rank) > 0;
      })) {
    return;  // not for this node
  }
  monitor_.collect_stacks(look.stacks_of, [this, look](const std::vector<std::string>& lines) {
    session_.answer(look, {.ranks = {}, .lines = lines});
  });
}

}  // namespace dlaunch
