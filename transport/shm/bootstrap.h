// How the ranks of a host come to share memory.
//
// The lowest of them, the leader, makes the segment and the doorbells and listens on a local socket
// (GroupLeader). The others connect to it (join_group): both sides prove the job's token, the
// leader hands over the descriptors, the member maps the segment, finds the job's nonce in it and
// enters itself. Only who has done so belongs to the group; what the ranks believed about being on
// the same host beforehand has only saved useless attempts.
//
//   leader -> member   challenge
//   member -> leader   own challenge, proof, rank, world size, job
//   leader -> member   proof, layout, nonce of the segment; the segment
//   leader -> member   doorbells, as many packets as it takes
//   member -> leader   joined
//   leader -> member   whether the leader can read its memory
//
// Strangers are dropped and disturb nobody. Internal to connect_mesh.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "transport/shm/local_socket.h"
#include "transport/shm/memory_probe.h"
#include "transport/shm/segment.h"

namespace dlaunch {

/// What leader and members agree on beforehand.
struct GroupIdentity {
  std::string token;
  std::uint64_t job = 0;
  int rank = 0;
  int world_size = 1;
  int lanes = 1;
  std::vector<int> candidates;  // ascending; slot i belongs to candidates[i]

  int slot_of(int rank_of_member) const;  // -1: no candidate
};

/// Enters this process as the member in a slot of the segment.
void enter_group(const HostGroup& group, int slot, const MemoryProbe& probe);

/// The leader's part. Lets members in from a thread of its own until it is destroyed. One thread
/// at a time.
class GroupLeader {
 public:
  /// Makes the segment and begins to serve `listener`. kIo or kUnavailable if it cannot.
  static Result<std::unique_ptr<GroupLeader>> start(LocalSocket listener, GroupIdentity identity,
                                                    const MemoryProbe& probe);
  ~GroupLeader();
  GroupLeader(const GroupLeader&) = delete;
  GroupLeader& operator=(const GroupLeader&) = delete;

  /// Stops serving and gives up the group; its members are still to be filled in.
  HostGroup finish() &&;
  /// Why the last one that was not let in was not, for whoever misses a member; empty: all were.
  /// After finish().
  const std::string& refusal() const { return refusal_; }

 private:
  struct Guest;
  GroupLeader(LocalSocket listener, GroupIdentity identity, HostGroup group, Descriptor stop);
  void serve();
  void accept(std::vector<Guest>& guests);
  bool hear(Guest& guest);
  void refuse(const Status& why);
  Status answer(Guest& guest);
  Status judge(Guest& guest);
  void stop();

  LocalSocket listener_;
  GroupIdentity identity_;
  HostGroup group_;
  Descriptor stop_;
  std::vector<bool> served_;  // by slot
  std::string refusal_;
  std::thread thread_;
};

/// What a member has come to.
struct JoinedGroup {
  HostGroup group;        // its members are still to be filled in
  bool readable = false;  // leader and member can read each other's memory
  bool pays = true;       // found out by one member for all
};

/// A member's part. Any error means that it cannot share the leader's memory.
Result<JoinedGroup> join_group(const std::string& leader, const GroupIdentity& identity,
                               const MemoryProbe& probe, Deadline deadline);

}  // namespace dlaunch
