// NodeLook: lets a node's hang report be about the ranks of all nodes. It asks the other nodes
// through the session, and answers when they ask. Belongs to the event loop's thread.
#pragma once

#include "launcher/hang/job_monitor.h"
#include "launcher/nodes/node_session.h"

namespace dlaunch {

class NodeLook {
 public:
  /// Both outlive it; until then the monitor looks at all nodes.
  NodeLook(JobMonitor& monitor, NodeSession& session);
  ~NodeLook();
  NodeLook(const NodeLook&) = delete;
  NodeLook& operator=(const NodeLook&) = delete;

 private:
  void ask(const std::vector<int>& stacks_of, bool stalled,
           const std::function<void(const std::vector<SeenElsewhere>&)>& take);
  void answer(const LookRecord& look);

  JobMonitor& monitor_;
  NodeSession& session_;
};

}  // namespace dlaunch
