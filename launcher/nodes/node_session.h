// NodeSession: a job of several nodes as the launcher's main thread sees it: rounds to take part
// in, one after the other, each with its end. Belongs to the event loop's thread, and runs the loop
// while it waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "launcher/base/event_loop.h"
#include "launcher/nodes/node_agent.h"
#include "launcher/options/command_line.h"
#include "launcher/output/output_relay.h"

namespace dlaunch {

/// What this node tells about itself, and how the job is coordinated if it hosts the store.
NodeAgent::Options describe_node(const NodeSettings& settings, const JobOptions& options,
                                 const std::string& job_id, const std::string& host,
                                 std::uint16_t master_port);

class NodeSession {
 public:
  NodeSession(EventLoop& loop, OutputRelay& relay, NodeAgent::Options options);
  ~NodeSession();
  NodeSession(const NodeSession&) = delete;
  NodeSession& operator=(const NodeSession&) = delete;

  /// Waits for a round that has this node in it. Nothing if the job ends instead (verdict(), which
  /// the user is told, or error() say how), or once `interrupted` holds.
  std::optional<RoundRecord> next_round(const std::function<bool()>& interrupted);

  /// Until the round has ended, `end` is called when its ranks are to end here too.
  void when_round_stops(std::function<void()> end);

  /// The round has ended here; `outcome` is for those who want to know all (round.outcomes). Waits
  /// for the verdict over all nodes. If all went well that may be long: once the user's departure
  /// says how the job ends, that is told instead, or nothing, and the node leaves (left()). Where
  /// the others are to end their ranks too, the departure is told, and where the job can go on
  /// without this node, or at a further signal, the waiting ends (gave_up()). False if there is no
  /// verdict.
  struct Departure {
    EndedRecord ended;
    bool silent = false;  // the others go on, and where they do not end their ranks either, as far
                          // as they know the ranks here have finished
    bool lost = false;    // to the others, whatever is told
  };
  struct User {
    std::function<std::optional<Departure>()> departure;
    std::function<int()> signals;  // that were to end the job, so far
  };
  bool end_round(const EndedRecord& ended, const std::string& outcome = "",
                 const User& user = {.departure = [] { return std::nullopt; },
                                     .signals = [] { return 0; }});
  /// This node's user ends the job, or this node's part, between two rounds or before the first.
  void end_between(const EndedRecord& ended);
  /// As NodeAgent::fall_silent.
  void fall_silent() { agent_.fall_silent(); }
  /// As NodeAgent::outcomes.
  std::vector<std::string> outcomes(const RoundRecord& round) { return agent_.outcomes(round); }

  /// Asks the other nodes of the round that is running; `take` is called once, later, with what
  /// they answer within `limit`, by node rank. Questions are asked one after the other.
  using Take = std::function<void(const std::vector<std::optional<SeenRecord>>& seen)>;
  void ask(LookRecord look, std::chrono::nanoseconds limit, Take take);
  /// What other nodes ask about the round that is running is given to `asked`; it may answer later.
  void when_asked(std::function<void(const LookRecord&)> asked) { asked_ = std::move(asked); }
  void answer(const LookRecord& look, const SeenRecord& seen) { agent_.answer(look, seen); }

  /// This node's rank in the round.
  int node_of(const RoundRecord& round) const;
  std::string store_address(const RoundRecord& round) const { return agent_.store_address(round); }

  /// Over the last round.
  const std::optional<VerdictRecord>& verdict() const { return verdict_; }
  /// It has left a job that goes on: there will be no further round.
  bool left() const { return left_; }
  /// Its user did not wait for the other nodes' ranks to end: nor will there be.
  bool gave_up() const { return gave_up_; }
  /// This node has the store, without which there is no job. Known once there was a round.
  bool hosts_store() const { return agent_.hosts_store(); }
  /// There will be no further round for this node, for one of these reasons or as verdict() says.
  bool over() const;
  /// Why this node cannot take part any more.
  const std::optional<NodeError>& error() const { return error_; }

 private:
  void take_events();
  void take(NodeNotice notice);
  void take(NodeError error);
  void take(RoundRecord round);
  void take(const StopRecord& stop);
  void take(VerdictRecord verdict);
  void take(const LookRecord& look);
  void take(const NodeAnswers& answers);
  void ask_next();
  void show_notice();
  void await_end_elsewhere(bool departs, const std::function<bool()>& judged, const User& user);

  EventLoop& loop_;
  OutputRelay& relay_;
  NodeAgent agent_;
  std::optional<RoundRecord> coming_;  // not yet taken up
  int current_ = -1;                   // the round whose ranks run
  int stopped_ = -2;                   // the last round that is to end
  int ended_ = -2;                     // the last round whose ranks have ended here
  std::function<void()> end_;
  struct Question {
    LookRecord look;
    std::chrono::nanoseconds limit;
    Take take;
  };
  std::deque<Question> questions_;
  bool asking_ = false;  // the first of them
  std::uint64_t questions_asked_ = 0;
  std::function<void(const LookRecord&)> asked_;
  std::optional<RoundRecord> round_;  // the current one
  std::optional<VerdictRecord> verdict_;
  std::optional<NodeError> error_;
  bool left_ = false;
  bool gave_up_ = false;
  std::string notice_;
  bool notices_shown_ = false;
  std::optional<EventLoop::TimerId> patience_;
};

}  // namespace dlaunch
