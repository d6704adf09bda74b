// The NodeCoordinator between two rounds: who may take part, for whom it waits, and with which
// numbers the nodes begin.
#include <algorithm>
#include <utility>

#include "launcher/failure/report.h"
#include "launcher/nodes/addresses.h"
#include "launcher/nodes/node_coordinator.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/host_address.h"

namespace dlaunch {
namespace {

// Beyond the time for all nodes to end their ranks.
constexpr std::chrono::seconds kVerdictSlack{30};

}  // namespace

// Why this member can never take part; empty: it can.
std::string NodeCoordinator::objection(const MemberRecord& member) const {
  if (member.version != options_.version) {
    return "different versions: " + member.name() + " runs dlaunch " + member.version +
           ", the node with the store " + options_.version;
  }
  if (member.nodes != options_.nodes) {
    return "different numbers of nodes: " + member.name() + " was started with --nnodes " +
           member.nodes + ", the node with the store with --nnodes " + options_.nodes;
  }
  if (member.node_rank >= options_.most) {
    return member.name() + " claims node rank " + std::to_string(member.node_rank) + " of " +
           options_.nodes + " nodes";
  }
  if (member.run_id != options_.run_id) {
    return "different jobs: " + member.name() + " belongs to '" + member.run_id +
           "', the node with the store to '" + options_.run_id +
           "' (--rdzv-id, or what the manager calls it)";
  }
  return "";
}

// Why there is no place for it while all members live; empty: there is.
std::string NodeCoordinator::no_place(const MemberRecord& member) const {
  for (const auto& [id, other] : members_) {
    if (member.node_rank >= 0 && other.record.node_rank == member.node_rank) {
      return "two nodes claim node rank " + std::to_string(member.node_rank) + ": " +
             other.record.name() + " and " + member.name();
    }
  }
  if (static_cast<int>(members_.size()) >= options_.most) {
    return "the job has its " + std::to_string(options_.most) + " nodes already: " + member.name() +
           " is surplus";
  }
  return "";
}

// A node may come in the place of one that is dead, and has not been missed yet: whoever finds no
// place waits until one of the members is lost, or all have given a sign of life.
void NodeCoordinator::admit(Time now) {
  for (auto next = without_place_.begin(); next != without_place_.end();) {
    const std::string why = no_place(next->record);
    const bool all_live = std::ranges::all_of(
        members_, [&](const auto& each) { return each.second.lived > next->came; });
    if (!why.empty() && !all_live) {
      ++next;
      continue;
    }
    const Newcomer newcomer = std::move(*next);
    next = without_place_.erase(next);
    if (why.empty()) {
      take_in(newcomer, now);
    } else {
      turn_away(newcomer.record.id, why);
    }
  }
}

void NodeCoordinator::take_in(const Newcomer& newcomer, Time now) {
  const MemberRecord& member = newcomer.record;
  members_.emplace(member.id, Member{.record = member,
                                     .order = arrivals_++,
                                     .last_rank = newcomer.last_rank,
                                     .lived = newcomer.came});
  last_change_ = now;
  if (phase_ == Phase::kForming) {
    note_waiting();
  } else if (phase_ == Phase::kStopping) {
    note_joining(member);
  } else if (elastic()) {
    newcomer_at_ = now;
    note_joining(member);
    stop("node " + member.name() + " joins the job", now);
  } else {
    // The node whose place it takes has left after its ranks had finished: nothing to disturb the
    // others for. A restart would have it take part.
    write(node_keys::kWaiting,
          "the job of " + options_.nodes + " nodes is running; waiting for its end");
  }
}

void NodeCoordinator::note_joining(const MemberRecord& member) {
  write(node_keys::kWaiting,
        "node " + member.name() + " takes part once the ranks of all nodes have ended");
}

// Whoever has come last is waited for no longer than all others.
bool NodeCoordinator::enough(Time now) const {
  const int count = static_cast<int>(members_.size());
  if (count == options_.most) return true;
  if (count < options_.least) return false;
  return now - last_change_ >= options_.settle || is_late(now);
}

bool NodeCoordinator::is_late(Time now) const {
  return now - std::max(since_, not_before_) > options_.join_timeout;
}

VerdictRecord NodeCoordinator::too_few() const {
  std::string why = "only " + std::to_string(members_.size()) + " of " + options_.nodes +
                    " nodes came within " + seconds(options_.join_timeout) + missing();
  for (const Lost& lost : lost_) why += "; " + lost.text;
  for (const auto& [id, text] : left_meanwhile_) why += "; " + text;
  // Where nodes have met before, or some were turned away, that is not what keeps others away.
  const bool met = round_ >= 0;
  const bool advises = !met && refusals_.empty() && options_.advice;
  const std::string advice = advises ? options_.advice() : "";
  if (!advice.empty()) why += "; " + advice;
  // Nobody has come in the place of one that was there.
  return {.number = round_,
          .action = VerdictRecord::Action::kFailed,
          .exit_code = met ? kLauncherNodeLost : kLauncherRendezvous,
          .reason = why};
}

// "; there is no node 2, 3", if the nodes have fixed numbers; and who was turned away.
std::string NodeCoordinator::missing() const {
  std::string text;
  std::vector<bool> there(static_cast<std::size_t>(options_.most));
  bool fixed = !members_.empty();
  for (const auto& [id, member] : members_) {
    fixed = fixed && member.record.node_rank >= 0;
    if (member.record.node_rank >= 0)
      there[static_cast<std::size_t>(member.record.node_rank)] = true;
  }
  constexpr int kNamed = 8;
  int named = 0;
  for (std::size_t rank = 0; fixed && rank < there.size(); ++rank) {
    if (there[rank] || named++ >= kNamed) continue;
    text += (named == 1 ? "; missing: node rank " : ", ") + std::to_string(rank);
  }
  if (named > kNamed) text += ", ...";
  if (!refusals_.empty()) text += "; refused: " + joined(refusals_);
  return text;
}

void NodeCoordinator::note_waiting() {
  if (static_cast<int>(members_.size()) == options_.most) return;  // it begins now
  std::string here;
  for (const auto& [id, member] : members_) {
    here += (here.empty() ? "; here: " : ", ") + member.record.host;
  }
  const int short_of = options_.least - static_cast<int>(members_.size());
  const std::string whom = short_of > 0
                               ? std::to_string(short_of) + " of " + options_.nodes + " nodes"
                               : "further nodes of " + options_.nodes;
  write(node_keys::kWaiting, "waiting for " + whom + here + missing());
}

// The members of the next round in the order of their node ranks: whoever had or wants a number
// that there is keeps it, the others fill what is left, in the order in which they came.
std::vector<NodeCoordinator::Member*> NodeCoordinator::by_rank() {
  std::vector<Member*> waiting;
  for (auto& [id, member] : members_) waiting.push_back(&member);
  std::sort(waiting.begin(), waiting.end(),
            [](const Member* a, const Member* b) { return a->order < b->order; });
  std::vector<Member*> ranks(waiting.size(), nullptr);
  for (const bool had_it : {true, false}) {
    for (Member*& member : waiting) {
      if (member == nullptr) continue;
      const int wanted = had_it ? member->last_rank : member->record.node_rank;
      if (wanted < 0 || wanted >= static_cast<int>(ranks.size())) continue;
      Member*& place = ranks[static_cast<std::size_t>(wanted)];
      if (place == nullptr) place = std::exchange(member, nullptr);
    }
  }
  auto free = ranks.begin();
  for (Member* member : waiting) {
    if (member == nullptr) continue;
    free = std::find(free, ranks.end(), nullptr);
    *free = member;
  }
  return ranks;
}

void NodeCoordinator::form(Time now) {
  using std::chrono::milliseconds;
  RoundRecord round{.number = ++round_,
                    .job_id = options_.job_id,
                    .restarts = restarts_,
                    .restarted = ever_ready_,
                    .max_restarts = options_.max_restarts,
                    .restart_delay_ms = options_.restart_delay / milliseconds(1)};
  milliseconds grace{};
  int rank = 0;
  for (Member* member : by_rank()) {
    member->last_rank = rank++;
    member->in_round = true;
    member->ended.reset();
    round.nodes.push_back({.id = member->record.id,
                           .host = member->record.host,
                           .ranks = member->record.ranks,
                           .first_rank = round.world});
    round.world += member->record.ranks;
    grace = std::max(grace, milliseconds(member->record.grace_ms));
    round.outcomes = round.outcomes || member->record.wants_outcomes;
    if (member->last_rank == 0) {
      round.master_address = member->record.address;
      round.master_port = member->record.master_port;
    }
    // Others reach the store elsewhere than its own host does.
    if (round.store.empty() || is_loopback(round.store)) round.store = member->record.store;
  }
  if (is_loopback(round.master_address)) round.master_address = round.store;
  end_limit_ = grace + options_.end_slack;
  round.verdict_limit_ms = (end_limit_ + kVerdictSlack) / milliseconds(1);
  lost_.clear();
  left_meanwhile_.clear();
  called_off_.reset();
  newcomer_at_.reset();
  write(node_keys::kWaiting, std::nullopt);
  phase_ = Phase::kRunning;
  since_ = now;
  write(node_keys::kRound, to_text(round));
  // Of the round that has just ended nodes may still read.
  if (round_ >= 2) forget(round_ - 2);
}

// An elastic job may have any number of rounds, and the store has a limit.
void NodeCoordinator::forget(int round) {
  for (const std::string_view of : {node_keys::kEnded, node_keys::kOutcomes, node_keys::kAttempt}) {
    write(std::string(of) + std::to_string(round) + "/", std::nullopt);
  }
}

}  // namespace dlaunch
