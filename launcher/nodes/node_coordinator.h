// NodeCoordinator: decides for the agents of all nodes when the ranks start, with which numbers,
// when they are to end, whose failure was the first, and whether they start again. A state machine
// without I/O: it is told what happens and gives the keys to write (node_records.h).
//
//   forming --(enough nodes)--> running --(failure, lost node, newcomer if elastic)--> stopping
//   running, stopping --(all nodes have ended)--> forming again, or done
//
// One thread. Failures of different nodes are compared by their age when they were reported and the
// time when the report came, so that the nodes' clocks need not agree. Where nodes come or go, what
// fails from then on is taken for a consequence: ranks lose their peers before their own dlaunch
// hears why.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/failure/failure.h"
#include "launcher/nodes/beat_clock.h"
#include "launcher/nodes/node_records.h"
#include "launcher/supervision/exit_watch.h"

namespace dlaunch {

class NodeCoordinator {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    int least = 1;  // nodes
    int most = 1;
    std::string nodes;    // the same, as the agents write it
    std::string version;  // of dlaunch
    std::string run_id;   // what the user calls the job
    std::string job_id;
    std::string host_id;                  // the member that hosts the store
    std::function<std::string()> advice;  // if nodes do not come; none, or an empty text: none
    int max_restarts = 0;
    std::chrono::nanoseconds restart_delay = std::chrono::seconds(1);
    std::chrono::nanoseconds join_timeout = std::chrono::minutes(5);
    std::chrono::nanoseconds longest_silence = kLongestSilence;  // for the CoordinatorThread
    /// After the last newcomer, if there could be more.
    std::chrono::nanoseconds settle = std::chrono::seconds(2);
    /// Beyond the longest grace period, for all nodes to end their ranks: longer than they wait for
    /// those to go once they are killed, and then for what else is left.
    std::chrono::nanoseconds end_slack = 2 * ExitWatch::kLongest + std::chrono::seconds(15);
  };
  struct Write {
    std::string key;
    std::optional<std::string> value;  // nothing: remove it, or all in it ("outcomes/0/")
  };

  NodeCoordinator(Options options, Time now);

  /// A member for which there is no place, because another has its node rank or there are enough,
  /// waits until those have lived after it came, and only then is turned away.
  void member_came(const MemberRecord& member, Time now);
  /// It certainly lived at `when`. What follows from that does in time_passed(): all members tell.
  void member_lived(const std::string& id, Time when);
  /// A member that cannot take part.
  void turn_away(const std::string& id, const std::string& why);
  /// `last_seen`: until when it certainly lived.
  void member_left(const std::string& id, const std::string& why, Time last_seen, Time now);
  /// It has given no sign of life for long. Where its ranks run it is lost; else it may live on,
  /// and takes part again when it gives one.
  void member_silent(const std::string& id, const std::string& why, Time last_seen, Time now);
  /// A signal or a timeout counts also between rounds. It ends the job, or, in an elastic one that
  /// can do without that node, takes just the node out. After a node's ranks have failed or were
  /// ended because of others it only keeps the job from starting again.
  void member_ended(int round, const std::string& id, const EndedRecord& ended, Time now);
  void time_passed(Time now);
  /// The node that hosts the store has to go.
  void give_up();

  /// What is to be written since the last call, in order.
  std::vector<Write> take_writes() { return std::exchange(writes_, {}); }
  /// The last verdict is among the writes so far.
  bool done() const { return phase_ == Phase::kDone; }
  bool has_members() const { return !members_.empty(); }

 private:
  enum class Phase { kForming, kRunning, kStopping, kDone };
  struct Member {
    MemberRecord record;
    int order = 0;       // in which they came
    int last_rank = -1;  // of this node in the last round
    Time lived;          // then, for certain
    bool in_round = false;
    std::optional<EndedRecord> ended;  // this round
    Time ended_at;
  };
  struct Newcomer {
    MemberRecord record;
    Time came;
    int last_rank = -1;  // of one that is back
  };
  struct Silent {
    Member member;
    int round;  // the last one that there was
  };
  struct Lost {
    int rank = -1;
    std::string text;
    Time last_seen;                // or when its ranks began to end
    std::optional<int> exit_code;  // of one that has left by itself
  };
  // Of whose ranks nothing runs any more, and what its user then said.
  struct CalledOff {
    Member by;
    EndedRecord why;
  };
  struct First {
    const Member* member;
    FailureRecord failure;
    Time when;
  };

  std::string objection(const MemberRecord& member) const;
  std::string no_place(const MemberRecord& member) const;
  bool waits_for_place(const std::string& id) const;
  void admit(Time now);
  void take_in(const Newcomer& newcomer, Time now);
  void refuse(const std::string& id, const std::string& why);
  void take_out(const std::string& id, Lost lost, Time now);
  std::optional<Member> idle(const std::string& id) const;
  void back_again(Silent silent, Time when);
  void ended_by_itself(Member& member, const EndedRecord& ended, Time now);
  void take_end(Member& member, const EndedRecord& ended, Time now);
  bool can_do_without(const Member& member) const;
  static std::string named(const Member& member);
  static std::string lost_text(const Member& member, const std::string& why);
  static std::string joined(const std::vector<std::string>& texts);
  void note_waiting();
  void note_joining(const MemberRecord& member);
  std::string missing() const;
  bool enough(Time now) const;
  bool is_late(Time now) const;
  VerdictRecord too_few() const;
  void form(Time now);
  void forget(int round);
  std::vector<Member*> by_rank();
  void stop(const std::string& why, Time now);
  bool all_ended() const;
  std::vector<const Member*> all_that_ended() const;
  std::optional<Time> disturbed_since() const;
  std::optional<First> first_failure() const;
  void conclude(Time now);
  VerdictRecord judge() const;
  std::optional<VerdictRecord> ended_by_a_node() const;
  std::optional<VerdictRecord> known_end() const;
  VerdictRecord failed(const First& first) const;
  VerdictRecord unless_called_off(VerdictRecord verdict) const;
  VerdictRecord ended_by(const Member& member, const EndedRecord& ended) const;
  VerdictRecord judge_failures(VerdictRecord verdict) const;
  VerdictRecord unless_there_are_leftovers(VerdictRecord verdict) const;
  bool elastic() const { return options_.least < options_.most; }
  bool has_restarts() const { return restarts_ < options_.max_restarts; }
  bool may_restart() const { return has_restarts() && ever_ready_; }
  bool all_have_finished() const;
  void announce(VerdictRecord verdict, Time now);
  void write(std::string_view key, std::optional<std::string> value);

  const Options options_;
  Phase phase_ = Phase::kForming;
  std::map<std::string, Member> members_;
  std::vector<Newcomer> without_place_;
  std::map<std::string, Silent> silent_;  // whose connections are still there
  std::vector<Member> ended_;   // in this round, and then gone: how they ended still counts
  std::optional<Member> host_;  // the node with the store, once it has gone
  std::vector<std::string> refusals_;
  std::vector<Lost> lost_;                             // in this round
  std::map<std::string, std::string> left_meanwhile_;  // once their ranks had ended: why
  std::optional<CalledOff> called_off_;
  std::optional<Time> newcomer_at_;  // the reason to stop, since then
  bool ever_ready_ = false;
  int arrivals_ = 0;
  int round_ = -1;
  int restarts_ = 0;
  std::chrono::nanoseconds end_limit_{};  // for all nodes of this round to end their ranks
  Time since_;                            // of this phase
  Time last_change_;                      // of the members
  Time not_before_;                       // the next round
  std::vector<Write> writes_;
};

}  // namespace dlaunch
