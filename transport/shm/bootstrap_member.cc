#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "transport/shm/bootstrap.h"
#include "transport/shm/bootstrap_packets.h"

namespace dlaunch {

int GroupIdentity::slot_of(int rank_of_member) const {
  const auto found = std::lower_bound(candidates.begin(), candidates.end(), rank_of_member);
  if (found == candidates.end() || *found != rank_of_member) return -1;
  return static_cast<int>(found - candidates.begin());
}

void enter_group(const HostGroup& group, int slot, const MemoryProbe& probe) {
  MemberRecord& record = group.record(slot);
  record.probe_address = probe.address();
  record.pid.store(::getpid(), std::memory_order_release);
}

namespace {

class Join {
 public:
  Join(LocalSocket socket, const GroupIdentity& identity, Deadline deadline)
      : socket_(std::move(socket)), identity_(identity), deadline_(deadline) {}

  Status prove();
  Status take_segment();
  Status take_doorbells();
  Status enter(const MemoryProbe& probe);
  void probe_leader();
  JoinedGroup result() && { return std::move(joined_); }

 private:
  LocalSocket socket_;
  const GroupIdentity& identity_;
  Deadline deadline_;
  Nonce challenge_{};
  Nonce own_nonce_ = make_nonce();
  JoinedGroup joined_;
};

Status Join::prove() {
  DLAUNCH_RETURN_IF_ERROR(socket_.receive(bytes_of(challenge_), nullptr, deadline_));
  const BootstrapResponse response{
      .nonce = own_nonce_,
      .proof = make_proof(identity_.token, HandshakeRole::kConnector, challenge_, own_nonce_),
      .version = kBootstrapVersion,
      .rank = identity_.rank,
      .world_size = identity_.world_size,
      .lanes = identity_.lanes,
      .job = identity_.job};
  return socket_.send(bytes_of(response), {}, deadline_);
}

Status Join::take_segment() {
  BootstrapAnswer answer;
  std::vector<Descriptor> files;
  DLAUNCH_RETURN_IF_ERROR(socket_.receive(bytes_of(answer), &files, deadline_));
  if (!proof_holds(answer.proof, identity_.token, HandshakeRole::kListener, own_nonce_,
                   challenge_)) {
    return Status(StatusCode::kUnauthenticated, "the leader does not know the job's token");
  }
  HostGroup& group = joined_.group;
  group.layout = SegmentLayout::of(static_cast<int>(identity_.candidates.size()), identity_.lanes,
                                   answer.heap_bytes);
  struct stat file {};
  if (files.size() != 1 || ::fstat(files[0].get(), &file) != 0 ||
      answer.total_bytes != group.layout.total_bytes ||
      static_cast<std::uint64_t>(file.st_size) < answer.total_bytes) {
    return Status(StatusCode::kProtocol,
                  "its segment is laid out otherwise (different builds in one job?)");
  }
  Result<Mapping> memory = Mapping::of_file(files[0].get(), group.layout.total_bytes);
  if (!memory.ok()) return memory.status();
  group.memory = *std::move(memory);
  if (group.header().nonce != answer.segment) {
    return Status(StatusCode::kProtocol, "the memory that was mapped is not the leader's");
  }
  return Status();
}

Status Join::take_doorbells() {
  HostGroup& group = joined_.group;
  const auto expected = identity_.candidates.size() * static_cast<std::size_t>(identity_.lanes);
  while (group.doorbells.size() < expected) {
    BootstrapDoorbells packet;
    const std::size_t before = group.doorbells.size();
    DLAUNCH_RETURN_IF_ERROR(socket_.receive(bytes_of(packet), &group.doorbells, deadline_));
    if (packet.count == 0 || group.doorbells.size() - before != packet.count ||
        group.doorbells.size() > expected) {
      return Status(StatusCode::kProtocol, "doorbells are missing");
    }
  }
  return Status();
}

Status Join::enter(const MemoryProbe& probe) {
  const int slot = identity_.slot_of(identity_.rank);
  enter_group(joined_.group, slot, probe);
  DLAUNCH_RETURN_IF_ERROR(socket_.send(bytes_of(BootstrapJoined{.slot = slot}), {}, deadline_));
  BootstrapVerdict verdict;
  DLAUNCH_RETURN_IF_ERROR(socket_.receive(bytes_of(verdict), nullptr, deadline_));
  joined_.readable = verdict.readable == 1;
  return Status();
}

// The first member after the leader also finds out for all whether reading pays.
void Join::probe_leader() {
  const MemberRecord& leader = joined_.group.record(0);
  const pid_t pid = leader.pid.load(std::memory_order_acquire);
  joined_.readable = joined_.readable && probe_is_readable(pid, leader.probe_address);
  if (joined_.readable && identity_.slot_of(identity_.rank) == 1) {
    joined_.pays = reading_probe_pays(pid, leader.probe_address);
  }
}

}  // namespace

Result<JoinedGroup> join_group(const std::string& leader, const GroupIdentity& identity,
                               const MemoryProbe& probe, Deadline deadline) {
  Result<LocalSocket> socket = LocalSocket::connect(leader, deadline);
  if (!socket.ok()) return socket.status();
  Join join(*std::move(socket), identity, deadline);
  DLAUNCH_RETURN_IF_ERROR(join.prove());
  DLAUNCH_RETURN_IF_ERROR(join.take_segment());
  DLAUNCH_RETURN_IF_ERROR(join.take_doorbells());
  DLAUNCH_RETURN_IF_ERROR(join.enter(probe));
  join.probe_leader();
  return std::move(join).result();
}

}  // namespace dlaunch
