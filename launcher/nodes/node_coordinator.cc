#include "launcher/nodes/node_coordinator.h"

#include <algorithm>

#include "launcher/failure/report.h"
#include "launcher/supervision/restart_policy.h"
#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

// A rank that failed because it lost a peer, see Supervisor.
bool is_echo(const FailureRecord& failure) {
  return failure.signal == 0 && failure.exit_code == kExitCommunication;
}

// By the will of its user, or because it cannot take part: whatever the other nodes do.
bool is_by_itself(EndedRecord::How how) {
  using How = EndedRecord::How;
  return how == How::kSignal || how == How::kTimeout || how == How::kNotStarted;
}

// What two nodes report does not take equally long to come: a failure that seems to be so much
// older than a node's leave may have followed from it.
constexpr std::chrono::milliseconds kReportsDiffer{200};

int exit_code_of(const FailureRecord& failure) {
  return failure.signal == 0 ? failure.exit_code : 128 + failure.signal;
}

}  // namespace

NodeCoordinator::NodeCoordinator(Options options, Time now)
    : options_(std::move(options)), since_(now), last_change_(now), not_before_(now) {}

void NodeCoordinator::write(std::string_view key, std::optional<std::string> value) {
  writes_.push_back({std::string(key), std::move(value)});
}

void NodeCoordinator::refuse(const std::string& id, const std::string& why) {
  write(std::string(node_keys::kRefused) + id, why);
}

void NodeCoordinator::member_came(const MemberRecord& member, Time now) {
  if (phase_ == Phase::kDone || members_.contains(member.id) || waits_for_place(member.id)) return;
  const std::string why = objection(member);
  if (!why.empty()) return turn_away(member.id, why);
  without_place_.push_back({.record = member, .came = now});
  time_passed(now);
}

bool NodeCoordinator::waits_for_place(const std::string& id) const {
  return std::ranges::any_of(without_place_,
                             [&](const Newcomer& each) { return each.record.id == id; });
}

void NodeCoordinator::member_lived(const std::string& id, Time when) {
  const auto found = members_.find(id);
  if (found != members_.end()) found->second.lived = when;
  auto back = silent_.extract(id);
  if (!back.empty()) back_again(std::move(back.mapped()), when);
}

// While the others end the round in which its ranks have ended it has nothing to do with the next.
void NodeCoordinator::back_again(Silent silent, Time when) {
  Member& member = silent.member;
  left_meanwhile_.erase(member.record.id);
  const bool round_lasts = phase_ != Phase::kForming && silent.round == round_;
  if (!member.in_round || !round_lasts || !no_place(member.record).empty()) {
    without_place_.push_back(
        {.record = member.record, .came = when, .last_rank = member.last_rank});
    return;
  }
  member.lived = when;
  std::erase_if(ended_, [&](const Member& each) { return each.record.id == member.record.id; });
  members_.emplace(member.record.id, std::move(member));
}

// One that is here and has no ranks that run.
std::optional<NodeCoordinator::Member> NodeCoordinator::idle(const std::string& id) const {
  if (phase_ == Phase::kDone) return std::nullopt;
  for (const Newcomer& each : without_place_) {
    if (each.record.id != id) continue;
    return Member{.record = each.record, .last_rank = each.last_rank, .lived = each.came};
  }
  const auto found = members_.find(id);
  if (found == members_.end()) return std::nullopt;
  const Member& member = found->second;
  if (member.in_round && !member.ended) return std::nullopt;
  return member;
}

void NodeCoordinator::member_silent(const std::string& id, const std::string& why, Time last_seen,
                                    Time now) {
  auto member = idle(id);
  const int round = round_;  // the next one may begin without it
  member_left(id, why, last_seen, now);
  if (member) silent_.emplace(id, Silent{*std::move(member), round});
}

void NodeCoordinator::turn_away(const std::string& id, const std::string& why) {
  refuse(id, why);
  refusals_.push_back(why);
  if (phase_ == Phase::kForming) note_waiting();
}

void NodeCoordinator::member_left(const std::string& id, const std::string& why, Time last_seen,
                                  Time now) {
  std::erase_if(without_place_, [&](const Newcomer& each) { return each.record.id == id; });
  silent_.erase(id);
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  const Member& member = found->second;
  if (phase_ != Phase::kDone && member.in_round && !member.ended) {
    refuse(id, "this node was taken for lost: " + why);
  }
  take_out(id, {.text = lost_text(member, why), .last_seen = last_seen}, now);
}

// `lost` is what it is if its ranks have not ended: its rank is filled in.
void NodeCoordinator::take_out(const std::string& id, Lost lost, Time now) {
  const auto found = members_.find(id);
  const Member gone = std::move(found->second);
  if (id == options_.host_id) host_ = gone;
  members_.erase(found);  // and maybe what `id` is a reference to
  last_change_ = now;
  if (phase_ == Phase::kForming) note_waiting();
  if (round_ >= 0 && (phase_ == Phase::kForming || gone.ended))
    left_meanwhile_[gone.record.id] = lost.text;
  if (gone.in_round && gone.ended) ended_.push_back(gone);
  if (phase_ == Phase::kDone || !gone.in_round || gone.ended) return time_passed(now);
  lost.rank = gone.last_rank;
  lost_.push_back(lost);
  if (phase_ == Phase::kRunning) stop(lost.text, now);
  time_passed(now);
}

void NodeCoordinator::member_ended(int round, const std::string& id, const EndedRecord& ended,
                                   Time now) {
  if (phase_ != Phase::kDone && silent_.contains(id)) {  // a sign of life, too
    member_lived(id, now);
    admit(now);
  }
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  // Who is told to end between two rounds speaks of the one that he knows.
  if (is_by_itself(ended.how)) return ended_by_itself(found->second, ended, now);
  if (round != round_ || found->second.ended) return;
  take_end(found->second, ended, now);
}

void NodeCoordinator::ended_by_itself(Member& member, const EndedRecord& ended, Time now) {
  if (std::optional<EndedRecord>& before = member.ended) {
    if (is_by_itself(before->how)) return;
    // Its ranks have finished, and its user does not wait for the others, which run.
    if (phase_ == Phase::kRunning) before.reset();
  }
  if (can_do_without(member)) {
    // Others lost their peers when the first of its ranks went; this comes when the last one has.
    const auto age = std::chrono::nanoseconds(ended.age_ns) + kReportsDiffer;
    return take_out(member.record.id,
                    {.text = named(member) + " has left the job: " + ended.error,
                     .last_seen = now - age,
                     .exit_code = ended.exit_code},
                    now);
  }
  if (phase_ == Phase::kForming) return announce(ended_by(member, ended), now);
  if (!member.ended) return take_end(member, ended, now);
  if (!called_off_) called_off_ = CalledOff{member, ended};
}

void NodeCoordinator::take_end(Member& member, const EndedRecord& ended, Time now) {
  member.ended = ended;
  member.ended_at = now;
  if (ended.master_port > 0) member.record.master_port = ended.master_port;
  ever_ready_ = ever_ready_ || ended.got_ready;
  if (ended.how != EndedRecord::How::kFinished && phase_ == Phase::kRunning) {
    stop("the ranks of " + member.record.name() + " have failed", now);
  }
  time_passed(now);
}

// A round goes on without a node that has no part in it, and before the first one the others wait
// for another. An elastic job goes on without one that wants to leave, as long as enough are left,
// and without one that has not begun. The node with the store speaks for the whole job.
bool NodeCoordinator::can_do_without(const Member& member) const {
  if (member.record.id == options_.host_id) return false;
  if (phase_ != Phase::kForming && !member.in_round) return true;
  if (round_ < 0) return true;
  if (!elastic()) return false;
  return member.last_rank < 0 || static_cast<int>(members_.size()) > options_.least;
}

void NodeCoordinator::time_passed(Time now) {
  if (phase_ == Phase::kDone) return;
  admit(now);
  if (phase_ == Phase::kForming && now >= not_before_ && enough(now)) return form(now);
  if (phase_ == Phase::kForming && is_late(now)) return announce(too_few(), now);
  if (phase_ == Phase::kRunning && all_ended()) return conclude(now);
  if (phase_ != Phase::kStopping) return;
  if (now - since_ > end_limit_) {
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
  const std::string why = "it hosted the store, and has left the job";
  if (phase_ == Phase::kRunning) stop(why, Time());  // the others' ranks
  if (const auto verdict = known_end()) return announce(*verdict, Time());
  // Its end may have been noticed as a member's already.
  if (const auto host = members_.find(options_.host_id); host != members_.end()) {
    host_ = host->second;
  }
  announce(
      {.number = round_,
       .action = VerdictRecord::Action::kFailed,
       .exit_code = kLauncherNodeLost,
       .reason = host_.has_value() ? lost_text(*host_, why)
                                   : "the node that hosted the store is lost: it never joined"},
      Time());
}

// "node 1 (host1 (pid 4711))", or without the number before it has one.
std::string NodeCoordinator::named(const Member& member) {
  const std::string number = member.last_rank < 0 ? "" : std::to_string(member.last_rank) + " ";
  return "node " + number + "(" + member.record.name() + ")";
}

std::string NodeCoordinator::lost_text(const Member& member, const std::string& why) {
  return named(member) + " is lost: " + why;
}

std::string NodeCoordinator::joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all;
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

// Since when ranks may fail because a node has come or gone.
std::optional<NodeCoordinator::Time> NodeCoordinator::disturbed_since() const {
  std::optional<Time> since = newcomer_at_;
  for (const Lost& lost : lost_) since = since ? std::min(*since, lost.last_seen) : lost.last_seen;
  return since;
}

// The first of all nodes that does not follow from their coming and going. What merely followed
// from the loss of a peer counts only if there is nothing else.
std::optional<NodeCoordinator::First> NodeCoordinator::first_failure() const {
  std::optional<First> first;
  const std::optional<Time> disturbed = disturbed_since();
  for (const Member* const member : all_that_ended()) {
    if (member->ended->failure.empty()) continue;
    auto failure = parse_failure(member->ended->failure);
    if (!failure.ok()) continue;
    const Time when = member->ended_at - std::chrono::nanoseconds(member->ended->age_ns);
    if (disturbed && when >= *disturbed) continue;
    const auto order = std::pair(is_echo(*failure), when);
    if (!first || order < std::pair(is_echo(first->failure), first->when)) {
      first = First{member, *std::move(failure), when};
    }
  }
  return first;
}

bool NodeCoordinator::all_have_finished() const {
  const auto all = all_that_ended();
  return lost_.empty() && std::ranges::all_of(all, [](const Member* member) {
           return member->ended->how == EndedRecord::How::kFinished;
         });
}

// Where ranks ended well at the signal, or before it, but those of other nodes did not, the job has
// not ended well.
VerdictRecord NodeCoordinator::ended_by(const Member& member, const EndedRecord& ended) const {
  VerdictRecord verdict{.number = round_,
                        .action = VerdictRecord::Action::kFailed,
                        .exit_code = ended.exit_code,
                        .reason = named(member) + ": " + ended.error};
  for (const Member* const other : all_that_ended())
    if (verdict.exit_code == 0) verdict.exit_code = other->ended->exit_code;
  for (const Lost& lost : lost_)
    if (verdict.exit_code == 0) verdict.exit_code = lost.exit_code.value_or(kLauncherNodeLost);
  return verdict;
}

std::optional<VerdictRecord> NodeCoordinator::ended_by_a_node() const {
  for (const Member* const member : all_that_ended()) {
    if (is_by_itself(member->ended->how)) return ended_by(*member, *member->ended);
  }
  return std::nullopt;
}

VerdictRecord NodeCoordinator::judge() const {
  if (const auto verdict = ended_by_a_node()) return *verdict;
  return unless_called_off(unless_there_are_leftovers(
      judge_failures({.number = round_, .action = VerdictRecord::Action::kFailed})));
}

// Without waiting for the nodes whose ranks have not ended.
std::optional<VerdictRecord> NodeCoordinator::known_end() const {
  if (auto verdict = ended_by_a_node()) return verdict;
  if (const auto first = first_failure(); first && !is_echo(first->failure)) return failed(*first);
  if (called_off_) return ended_by(called_off_->by, called_off_->why);
  return std::nullopt;
}

VerdictRecord NodeCoordinator::failed(const First& first) const {
  return {.number = round_,
          .action = VerdictRecord::Action::kFailed,
          .exit_code = exit_code_of(first.failure),
          .failure = serialize(first.failure),
          .node = first.member->last_rank};
}

// What has happened before is how the job ends.
VerdictRecord NodeCoordinator::unless_called_off(VerdictRecord verdict) const {
  if (!called_off_ || verdict.action != VerdictRecord::Action::kAgain) return verdict;
  VerdictRecord by_user = ended_by(called_off_->by, called_off_->why);
  if (verdict.exit_code == 0) return by_user;
  verdict.action = VerdictRecord::Action::kFailed;
  verdict.reason += (verdict.reason.empty() ? "" : "; ") + ("no restart: " + by_user.reason);
  return verdict;
}

// What could not be killed still has its memory, its GPU and its files: the job does not start
// again beside it.
VerdictRecord NodeCoordinator::unless_there_are_leftovers(VerdictRecord verdict) const {
  if (verdict.action != VerdictRecord::Action::kAgain) return verdict;
  const auto all = all_that_ended();
  verdict.leftovers =
      std::ranges::any_of(all, [](const Member* member) { return member->ended->leftovers; });
  if (!verdict.leftovers) return verdict;
  verdict.action = VerdictRecord::Action::kFailed;
  if (verdict.exit_code == 0) verdict.exit_code = kLauncherFailure;
  return verdict;
}

VerdictRecord NodeCoordinator::judge_failures(VerdictRecord verdict) const {
  const auto first = first_failure();
  if (!lost_.empty() && (!first || is_echo(first->failure))) {
    std::vector<std::string> texts;
    for (const Lost& lost : lost_) texts.push_back(lost.text);
    verdict.reason = joined(texts);
    verdict.node = lost_.front().rank;
    // Of those that have left by themselves none is lost.
    if (std::ranges::any_of(lost_, [](const Lost& lost) { return !lost.exit_code; }))
      verdict.exit_code = kLauncherNodeLost;
    // That says nothing against a program that never got ready.
    if (elastic() || has_restarts()) verdict.action = VerdictRecord::Action::kAgain;
  } else if (first) {
    verdict = failed(*first);
    if (may_restart()) verdict.action = VerdictRecord::Action::kAgain;
  } else if (newcomer_at_ && !all_have_finished()) {
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
  const bool counts = !verdict.failure.empty() || !elastic();
  if (verdict.action == Action::kAgain && counts) {
    const auto delay = restart_delay(options_.restart_delay, restarts_);
    verdict.delay_ms = std::chrono::duration_cast<std::chrono::milliseconds>(delay).count();
    ++restarts_;
  }
  announce(verdict, now);
}

void NodeCoordinator::announce(VerdictRecord verdict, Time now) {
  for (const Lost& lost : lost_) verdict.lost.push_back(lost.rank);
  verdict.missing = std::max(0, options_.least - static_cast<int>(members_.size()));
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
  note_waiting();
  time_passed(now);
}

}  // namespace dlaunch
