// NodeAgent: this node's part in a job of several nodes. It finds the store, or hosts it; says that
// this node is there and lives; and passes on what the coordinator decides. On the node with the
// store it runs the coordinator too.
//
// Threads of its own do the waiting. The members may be called by one thread, which learns from
// event_descriptor() that there is something to take. The destructor leaves the job; on the node
// with the store it first waits, for a few seconds at most, until the other nodes have left.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "launcher/nodes/beat_clock.h"
#include "launcher/nodes/node_coordinator.h"
#include "launcher/nodes/node_records.h"
#include "launcher/nodes/node_settings.h"
#include "launcher/nodes/node_store.h"
#include "runtime/base/descriptor.h"

namespace dlaunch {

/// For the user to read.
struct NodeNotice {
  std::string line;
};
/// This node cannot take part (any more).
struct NodeError {
  int exit_code;
  std::string why;
};
/// What the other nodes of a round have answered to a question, by node rank; nothing from those
/// that have not, and for this node.
struct NodeAnswers {
  std::string question;
  std::vector<std::optional<SeenRecord>> seen;
};
using NodeEvent = std::variant<NodeNotice, NodeError, RoundRecord, StopRecord, VerdictRecord,
                               LookRecord, NodeAnswers>;

class NodeAgent {
 public:
  struct Options {
    NodeSettings settings;
    MemberRecord self;  // but for the addresses, which the connection tells
    NodeCoordinator::Options coordinator;
  };

  /// Returns at once; what happens then comes as events. Throws std::system_error.
  explicit NodeAgent(Options options);
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  /// Readable while there are events.
  int event_descriptor() const { return event_descriptor_.get(); }
  std::vector<NodeEvent> take_events();

  const std::string& id() const { return options_.self.id; }
  /// Known once it has joined.
  bool hosts_store() const { return store_.server != nullptr; }
  /// Tells how a round ended on this node; `outcome`, if not empty, is all about it.
  void report(int round, const EndedRecord& ended, const std::string& outcome);
  /// This node's user ends its part in the job: the others are told, also if it is just joining, in
  /// which case nothing follows but the destructor.
  void leave(const EndedRecord& ended);
  /// This node is about to go without a word: it gives no more signs of life.
  void fall_silent();
  /// The outcomes of a round that has ended, by node rank; empty where there is none.
  std::vector<std::string> outcomes(const RoundRecord& round);
  /// Asks the other nodes of the round that are concerned; their answers come as an event, when
  /// `limit` has passed at the latest. One question at a time.
  void ask(const LookRecord& look, const RoundRecord& round, std::chrono::nanoseconds limit);
  /// What has come so far is the answer to the question that is being asked, and comes soon.
  void give_up_asking();
  /// Answers what another node asked.
  void answer(const LookRecord& look, const SeenRecord& seen);
  /// The same if this round has ended here, and the question concerns this node.
  void answer_ended(const LookRecord& look, const RoundRecord& round);
  /// host:port at which the ranks of this node find the store.
  std::string store_address(const RoundRecord& round) const;

 private:
  void work();
  bool join_job();
  void withdraw();
  std::string advice_on_absent() const;
  void beat();
  void watch();
  bool handle(const StoreChanges::Change& change);
  void gather(const LookRecord& look, const std::map<std::size_t, std::string>& keys,
              Deadline deadline, NodeAnswers& answers);
  void post(NodeEvent event);
  void fail(const Status& status, int exit_code);
  void fail_here(const std::string& why);
  void fail_without_store(const Status& why);
  void begin_beat();
  void end_beat();
  std::chrono::nanoseconds silence();
  void guarded(const std::function<void()>& work);
  bool wait_for_stop(std::chrono::nanoseconds time);
  bool stopping();
  bool is_silent();
  bool gives_up_asking();

  Options options_;
  Descriptor event_descriptor_;
  NodeStore store_;
  std::unique_ptr<class CoordinatorThread> coordinator_;  // on the node with the store

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  bool joined_ = false;
  bool failed_ = false;
  bool silent_ = false;
  bool given_up_asking_ = false;
  std::optional<EndedRecord> last_word_;
  BeatClock beat_clock_;
  std::vector<NodeEvent> events_;

  std::thread worker_;
  std::thread beats_;
  std::thread asker_;
};

}  // namespace dlaunch
