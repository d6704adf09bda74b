#include "launcher/nodes/node_coordinator.h"

#include <algorithm>

#include "launcher/failure/report.h"
#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kLongestDelay = std::chrono::minutes(1);
constexpr int kMostDoublings = 20;

// A rank that failed because it lost a peer, see Supervisor.
bool is_echo(const FailureRecord& failure) {
  return failure.signal == 0 && failure.exit_code == kExitCommunication;
}

// Whatever the other nodes do.
bool ends_the_job(EndedRecord::How how) {
  using How = EndedRecord::How;
  return how == How::kSignal || how == How::kTimeout || how == How::kNotStarted;
}

int exit_code_of(const FailureRecord& failure) {
  return failure.signal == 0 ? failure.exit_code : 128 + failure.signal;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all;
}

}  // namespace

NodeCoordinator::NodeCoordinator(Options options, Time now)
    : options_(std::move(options)), since_(now), last_change_(now), not_before_(now) {}

void NodeCoordinator::write(std::string_view key, std::optional<std::string> value) {
  writes_.push_back({std::string(key), std::move(value)});
}

// Why this member cannot take part; empty: it can.
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
    return "different jobs: " + member.name() + " was started with --rdzv-id '" + member.run_id +
           "', the node with the store with '" + options_.run_id + "'";
  }
  for (const auto& [id, other] : members_) {
    if (member.node_rank >= 0 && other.record.node_rank == member.node_rank) {
      return "two nodes claim node rank " + std::to_string(member.node_rank) + ": " +
             other.record.name() + " and " + member.name();
    }
  }
  if (static_cast<int>(members_.size()) >= options_.most) {
    return "the job has its " + std::to_string(options_.most) + " nodes already: " + member.name() +
           " is one too many";
  }
  return "";
}

void NodeCoordinator::refuse(const std::string& id, const std::string& why) {
  write(std::string(node_keys::kRefused) + id, why);
}

void NodeCoordinator::member_came(const MemberRecord& member, Time now) {
  if (members_.contains(member.id) || phase_ == Phase::kDone) return;
  const std::string why = objection(member);
  if (!why.empty()) {
    refuse(member.id, why);
    refusals_.push_back(why);
    if (phase_ == Phase::kForming) note_waiting();
    return;
  }
  members_.emplace(member.id, Member{.record = member, .order = arrivals_++});
  last_change_ = now;
  if (phase_ == Phase::kForming) {
    note_waiting();
  } else if (phase_ == Phase::kRunning) {
    newcomer_ = true;
    stop("node " + member.name() + " joins the job", now);
  }
  time_passed(now);
}

void NodeCoordinator::member_left(const std::string& id, const std::string& why, Time last_seen,
                                  Time now) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  const Member gone = std::move(found->second);
  if (id == options_.host_id) host_ = gone;
  members_.erase(found);
  last_change_ = now;
  if (phase_ == Phase::kForming) note_waiting();
  if (gone.in_round && gone.ended) ended_.push_back(gone);
  if (phase_ == Phase::kDone || !gone.in_round || gone.ended) return time_passed(now);
  const std::string text = lost_text(gone, why);
  refuse(id, "this node was taken for lost: " + why);
  lost_.push_back({gone.last_rank, text, last_seen});
  if (phase_ == Phase::kRunning) stop(text, now);
  time_passed(now);
}

void NodeCoordinator::member_ended(int round, const std::string& id, const EndedRecord& ended,
                                   Time now) {
  const auto found = members_.find(id);
  if (found == members_.end() || found->second.ended) return;
  // Who is told to end the job between two rounds speaks of the one that he knows.
  const bool ends_job = ends_the_job(ended.how);
  if (round != round_ && !ends_job) return;
  if (phase_ == Phase::kForming && ends_job && round_ >= 0) {
    return announce(ended_by(found->second, ended), now);
  }
  found->second.ended = ended;
  found->second.ended_at = now;
  if (ended.master_port > 0) found->second.record.master_port = ended.master_port;
  ever_ready_ = ever_ready_ || ended.got_ready;
  if (ended.how != EndedRecord::How::kFinished && phase_ == Phase::kRunning) {
    stop("the ranks of " + found->second.record.name() + " have failed", now);
  }
  time_passed(now);
}

void NodeCoordinator::time_passed(Time now) {
  if (phase_ == Phase::kForming && now >= not_before_ && enough(now)) return form(now);
  if (phase_ == Phase::kForming && now - std::max(since_, not_before_) > options_.join_timeout) {
    std::string why = "only " + std::to_string(members_.size()) + " of " + options_.nodes +
                      " nodes came within " + seconds(options_.join_timeout) + missing();
    return announce({.number = round_,
                     .action = VerdictRecord::Action::kFailed,
                     .exit_code = kLauncherRendezvous,
                     .reason = why},
                    now);
  }
  if (phase_ == Phase::kRunning && all_ended()) return conclude(now);
  if (phase_ != Phase::kStopping) return;
  if (now - since_ > options_.end_limit) {
    std::vector<std::string> late;
    for (const auto& [id, member] : members_) {
      if (member.in_round && !member.ended) late.push_back(id);
    }
    since_ = now;
    for (const std::string& id : late) member_left(id, "it did not end its ranks", now, now);
  }
  if (phase_ == Phase::kStopping && all_ended()) conclude(now);
}

void NodeCoordinator::give_up() {
  if (phase_ == Phase::kDone) return;
  if (const auto verdict = ended_by_a_node()) return announce(*verdict, Time());
  // Its end may have been noticed as a member's already.
  if (const auto host = members_.find(options_.host_id); host != members_.end()) {
    host_ = host->second;
  }
  const std::string why = "it hosted the store, and has left the job";
  announce(
      {.number = round_,
       .action = VerdictRecord::Action::kFailed,
       .exit_code = kLauncherNodeLost,
       .reason = host_.has_value() ? lost_text(*host_, why)
                                   : "the node that hosted the store is lost: it never joined"},
      Time());
}

// "node 1 (host1 (pid 4711)) is lost: WHY".
std::string NodeCoordinator::lost_text(const Member& member, const std::string& why) {
  const std::string number = member.last_rank < 0 ? "" : std::to_string(member.last_rank) + " ";
  return "node " + number + "(" + member.record.name() + ") is lost: " + why;
}

bool NodeCoordinator::enough(Time now) const {
  const int count = static_cast<int>(members_.size());
  if (count == options_.most) return true;
  return count >= options_.least && now - last_change_ >= options_.settle;
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
  std::string here;
  for (const auto& [id, member] : members_) {
    here += (here.empty() ? "; here: " : ", ") + member.record.host;
  }
  write(node_keys::kWaiting,
        "waiting for " +
            std::to_string(std::max(0, options_.least - static_cast<int>(members_.size()))) +
            " of " + options_.nodes + " nodes" + here + missing());
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
  RoundRecord round{.number = ++round_, .job_id = options_.job_id, .restarts = restarts_};
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
    round.outcomes = round.outcomes || member->record.wants_outcomes;
    if (member->last_rank == 0) {
      round.master_address = member->record.address;
      round.master_port = member->record.master_port;
    }
    // Others reach the store elsewhere than its own host does.
    if (round.store.empty() || round.store.starts_with("127.")) round.store = member->record.store;
  }
  if (round.master_address.starts_with("127.")) round.master_address = round.store;
  lost_.clear();
  newcomer_ = false;
  phase_ = Phase::kRunning;
  since_ = now;
  write(node_keys::kRound, to_text(round));
}

void NodeCoordinator::stop(const std::string& why, Time now) {
  phase_ = Phase::kStopping;
  since_ = now;
  write(node_keys::kStop, to_text(StopRecord{round_, why}));
}

bool NodeCoordinator::all_ended() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& each) { return !each.second.in_round || each.second.ended; });
}

std::vector<const NodeCoordinator::Member*> NodeCoordinator::all_that_ended() const {
  std::vector<const Member*> all;
  for (const auto& [id, member] : members_) {
    if (member.ended) all.push_back(&member);
  }
  for (const Member& member : ended_) all.push_back(&member);
  return all;
}

// The first of all nodes. What merely followed from the loss of a peer counts only if there is
// nothing else.
std::optional<NodeCoordinator::First> NodeCoordinator::first_failure() const {
  std::optional<First> first;
  for (const Member* const member : all_that_ended()) {
    if (member->ended->failure.empty()) continue;
    auto failure = parse_failure(member->ended->failure);
    if (!failure.ok()) continue;
    const Time when = member->ended_at - std::chrono::nanoseconds(member->ended->age_ns);
    const auto order = std::pair(is_echo(*failure), when);
    if (!first || order < std::pair(is_echo(first->failure), first->when)) {
      first = First{member, *std::move(failure), when};
    }
  }
  return first;
}

bool NodeCoordinator::may_restart() const {
  return restarts_ < options_.max_restarts && ever_ready_;
}

// By a node's user, or because it cannot take part.
VerdictRecord NodeCoordinator::ended_by(const Member& member, const EndedRecord& ended) const {
  return {.number = round_,
          .action = VerdictRecord::Action::kFailed,
          .exit_code = ended.exit_code,
          .reason = "node " + std::to_string(member.last_rank) + " (" + member.record.name() +
                    "): " + ended.error};
}

std::optional<VerdictRecord> NodeCoordinator::ended_by_a_node() const {
  for (const Member* const member : all_that_ended()) {
    if (ends_the_job(member->ended->how)) return ended_by(*member, *member->ended);
  }
  return std::nullopt;
}

VerdictRecord NodeCoordinator::judge() const {
  if (const auto verdict = ended_by_a_node()) return *verdict;
  return judge_failures({.number = round_, .action = VerdictRecord::Action::kFailed});
}

VerdictRecord NodeCoordinator::judge_failures(VerdictRecord verdict) const {
  const auto first = first_failure();
  const bool lost_first = !lost_.empty() && (!first || is_echo(first->failure) ||
                                             lost_.front().last_seen <= first->when);
  if (lost_first) {
    std::vector<std::string> texts;
    for (const Lost& lost : lost_) texts.push_back(lost.text);
    verdict.reason = joined(texts);
    verdict.node = lost_.front().rank;
    verdict.exit_code = kLauncherNodeLost;
    if (elastic() || may_restart()) verdict.action = VerdictRecord::Action::kAgain;
  } else if (first) {
    verdict.failure = serialize(first->failure);
    verdict.node = first->member->last_rank;
    verdict.exit_code = exit_code_of(first->failure);
    if (may_restart()) verdict.action = VerdictRecord::Action::kAgain;
  } else if (newcomer_) {
    verdict.action = VerdictRecord::Action::kAgain;
    verdict.reason = "a node joins the job";
  } else {
    verdict.action = VerdictRecord::Action::kFinished;
  }
  return verdict;
}

void NodeCoordinator::conclude(Time now) {
  VerdictRecord verdict = judge();
  using Action = VerdictRecord::Action;
  // Nodes that come and go cost an elastic job no restart; failures do.
  const bool counts = !verdict.failure.empty() || (!newcomer_ && !elastic());
  if (verdict.action == Action::kAgain && counts) {
    const int doublings = std::min(restarts_, kMostDoublings);
    const auto delay = std::min(options_.restart_delay * (1 << doublings),
                                std::max(kLongestDelay, options_.restart_delay));
    verdict.delay_ms = std::chrono::duration_cast<std::chrono::milliseconds>(delay).count();
    ++restarts_;
  }
  announce(verdict, now);
}

void NodeCoordinator::announce(const VerdictRecord& verdict, Time now) {
  write(node_keys::kVerdict, to_text(verdict));
  ended_.clear();
  if (verdict.action != VerdictRecord::Action::kAgain) {
    phase_ = Phase::kDone;
    return;
  }
  for (auto& [id, member] : members_) {
    write(std::string(node_keys::kEnded) + std::to_string(round_) + "/" + id, std::nullopt);
    member.in_round = false;
    member.ended.reset();
  }
  phase_ = Phase::kForming;
  since_ = now;
  last_change_ = now;
  not_before_ = now + std::chrono::milliseconds(verdict.delay_ms);
  refusals_.clear();
  if (static_cast<int>(members_.size()) < options_.least) note_waiting();
  time_passed(now);
}

}  // namespace dlaunch
