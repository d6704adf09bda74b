// What the dlaunch processes of a job's nodes tell each other through the store, as plain values,
// and the keys they are found under. Each node's dlaunch is called an agent; the one that hosts the
// store also runs the NodeCoordinator.
//
//   nodes/member/ID      MemberRecord     by each agent; goes with its connection
//   nodes/ended/N/ID     EndedRecord      by each agent: how round N ended there, or, with -1, that
//                                         it leaves by itself
//   nodes/refused/ID     text             by the coordinator: that agent cannot take part
//   nodes/waiting        text             by the coordinator: for whom
//   nodes/round          RoundRecord      by the coordinator: start these ranks
//   nodes/stop           StopRecord       by the coordinator: end them
//   nodes/verdict        VerdictRecord    by the coordinator: how the round ended, and what now
//   nodes/look/ID        LookRecord       by the agent that asks, until it has its answers
//   seen/QUESTION/ID     SeenRecord       by each agent that was asked
//   outcomes/N/ID        JSON             by each agent: all about round N there (--report), if the
//                                         RoundRecord asks for it; before its EndedRecord
//   beats/ID             a counter        by each agent, twice a second
//   attempt N/...        what the ranks of round N keep there
//
// What there is of a round goes when the second one after it begins.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace dlaunch {

namespace node_keys {
inline constexpr std::string_view kAll = "nodes/";
inline constexpr std::string_view kMember = "nodes/member/";
inline constexpr std::string_view kEnded = "nodes/ended/";
inline constexpr std::string_view kRefused = "nodes/refused/";
inline constexpr std::string_view kWaiting = "nodes/waiting";
inline constexpr std::string_view kRound = "nodes/round";
inline constexpr std::string_view kStop = "nodes/stop";
inline constexpr std::string_view kVerdict = "nodes/verdict";
inline constexpr std::string_view kLook = "nodes/look/";
inline constexpr std::string_view kSeen = "seen/";
inline constexpr std::string_view kOutcomes = "outcomes/";
inline constexpr std::string_view kBeats = "beats/";
inline constexpr std::string_view kAttempt = "attempt ";
}  // namespace node_keys

struct MemberRecord {
  std::string id;
  std::string host;
  int pid = 0;
  std::string version;  // of dlaunch
  std::string nodes;    // as it was told: "4" or "2:4"
  std::string run_id;   // as it was told; empty: any
  int node_rank = -1;   // that it was told; -1: any
  int ranks = 0;        // it will start
  std::string address;  // under which other nodes reach it, numeric
  std::string store;    // host at which it reaches the store, numeric
  int master_port = 0;  // free there
  bool wants_outcomes = false;
  std::int64_t grace_ms = 0;  // --grace

  /// "host1 (pid 4711)".
  std::string name() const { return host + " (pid " + std::to_string(pid) + ")"; }
};

struct RoundRecord {
  struct Node {
    std::string id;
    std::string host;
    int ranks = 0;
    int first_rank = 0;
  };
  int number = 0;  // from 0
  std::string job_id;
  std::vector<Node> nodes;  // by node rank
  int world = 0;
  int restarts = 0;        // after failures, so far
  bool restarted = false;  // the ranks had been ready in a round before
  std::string master_address;
  int master_port = 0;
  std::string store;                  // host at which others reach the store
  bool outcomes = false;              // some node wants to know what became of every rank
  std::int64_t verdict_limit_ms = 0;  // from when the round is to end
  // What counts, whatever other nodes were told.
  int max_restarts = 0;
  std::int64_t restart_delay_ms = 0;
};

struct EndedRecord {
  enum class How { kFinished, kFailed, kStopped, kSignal, kTimeout, kNotStarted };
  How how = How::kFinished;
  std::string failure;  // a FailureRecord, serialized; empty: no rank failed by itself
  // When this was written, how long ago that was or, with kSignal and kTimeout, how long ago the
  // ranks were told to end.
  std::int64_t age_ns = 0;
  bool got_ready = false;
  int exit_code = 0;       // of this node on its own
  std::string error;       // with kNotStarted and kSignal
  int master_port = 0;     // free on this node, for the next round; 0: none was found
  bool leftovers = false;  // some of its processes could not be killed
};

struct StopRecord {
  int number = 0;
  std::string why;
};

struct VerdictRecord {
  enum class Action { kFinished, kFailed, kAgain };
  int number = 0;
  Action action = Action::kFinished;
  int exit_code = 0;
  std::string reason;         // for people; empty if all went well
  std::string failure;        // the first of all nodes, serialized
  int node = -1;              // where it was
  std::int64_t delay_ms = 0;  // before the next round
  std::vector<int> lost;      // nodes of whose ranks nothing is known
  int missing = 0;            // nodes that have to come before the next round
  bool leftovers = false;     // for which the job does not start again: see EndedRecord
};

/// A question for a hang report: what are your ranks doing, or, if ranks are named, what are their
/// stacks?
struct LookRecord {
  std::string question;  // its own name
  int round = 0;
  bool stalled = false;        // asked because nothing moves: one report of that is enough
  std::vector<int> stacks_of;  // of any node
};

struct SeenRecord {
  std::string ranks;               // ObservedRanks, serialized; empty: none are running
  std::vector<std::string> lines;  // of stacks
  bool ended = false;              // the round has, here
};

std::string to_text(const MemberRecord& record);
std::string to_text(const RoundRecord& record);
std::string to_text(const EndedRecord& record);
std::string to_text(const StopRecord& record);
std::string to_text(const VerdictRecord& record);
std::string to_text(const LookRecord& record);
std::string to_text(const SeenRecord& record);

/// T: one of the records. kProtocol if the text is none.
template <typename T>
Result<T> parse_record(std::string_view text);

}  // namespace dlaunch
