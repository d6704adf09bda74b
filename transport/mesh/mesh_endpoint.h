// MeshEndpoint: an Endpoint that reaches some peers through shared memory and the others over TCP.
// Made by connect_mesh(); internal to the transport.
//
// Everything happens in the calls of the driving thread. A waiting endpoint looks at what it awaits
// for as long as its WaitPolicy says, now and then at everything; then it sleeps on an EventSet:
// the doorbell that members of its host ring, their pidfds, the sockets, wake().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "transport/endpoint.h"
#include "transport/event_set.h"
#include "transport/failure_notice.h"
#include "transport/failure_state.h"
#include "transport/inbox.h"
#include "transport/mesh/wait_policy.h"
#include "transport/shm/link.h"
#include "transport/shm/segment.h"
#include "transport/shm/shared_group.h"
#include "transport/tcp/connection.h"

namespace dlaunch {

class MeshEndpoint final : public Endpoint {
 public:
  /// kIo without descriptors for it.
  static Result<std::unique_ptr<MeshEndpoint>> make(int rank, int world_size, WaitPolicy wait,
                                                    SignaturePrinter describe,
                                                    std::size_t kept_bytes = kDefaultKeptBytes);
  ~MeshEndpoint() override;
  MeshEndpoint(const MeshEndpoint&) = delete;
  MeshEndpoint& operator=(const MeshEndpoint&) = delete;

  // Each peer gets one of these before the first use.

  /// A connected socket.
  Status add_connection(int peer, Descriptor socket);
  /// The socket of a lane whose end shows that a peer reached over TCP is leaving or gone, also
  /// while this lane reads nothing from it. It stays the caller's, and may be closed at any time.
  Status add_witness(int peer, int descriptor);
  /// Lane `lane` of the group leads to all its members.
  Status add_group(std::shared_ptr<const HostGroup> group, int lane);

  /// Ends every way to the peers without a word, as the death of the process would: for tests. The
  /// endpoint must not be used afterwards, only destroyed.
  void vanish();

  int rank() const override { return context_.rank; }
  int world_size() const override { return context_.world_size; }
  void start_send(Transfer& transfer) override;
  void start_recv(Transfer& transfer) override;
  void cancel(Transfer& transfer, Status why) override;
  void poll(Deadline deadline, const Readiness* also) override;
  void wake() override;
  Status failure() const override { return failure_.status(); }
  void fail(Status why) override;
  void linger(std::chrono::nanoseconds longest) override { linger_ = longest; }
  const char* transport_name(int peer) const override;
  std::span<const int> departed() const override { return departed_; }
  SharedGroup* shared_group() override { return group_.has_value() ? &*group_ : nullptr; }
  Status group_failure() override;
  void fail_unreadable(const Status& why) override;

 private:
  // What an event is about; the number is a rank, or a member of the group.
  enum TokenKind : std::uint32_t { kWakeup, kDoorbell, kDeath, kSocket, kWitness };

  // At most one way to a peer; none to this rank itself.
  struct Peer {
    std::unique_ptr<ShmLink> link;
    std::unique_ptr<TcpConnection> connection;
    bool left = false;     // has said goodbye
    bool awaited = false;  // is in awaited_
  };

  MeshEndpoint(int rank, int world_size, WaitPolicy wait, SignaturePrinter describe,
               std::size_t kept_bytes, EventSet events, Descriptor wakeup);

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool refuse(Transfer& transfer);
  void send_to_self(Transfer& transfer);
  void recv_from_any(Transfer& transfer);
  std::optional<int> sender_of_first(const MessageTag& tag) const;
  bool alone() const;
  void await(int rank);

  bool take_event(const Readiness* also);
  bool look_on(Deadline deadline, const Readiness* also);
  void look_at_awaited();
  bool look_at(Peer& peer);
  void look_at_everything();
  bool look_at_memory();
  void sleep_until(Deadline deadline, const Readiness* also);
  void fall_asleep(const Readiness* also);
  void wake_up();
  void handle(std::span<const EventSet::Event> events);

  // Shared memory.
  void read(ShmLink& link);
  void read_to_the_end(ShmLink& link);
  void look_at_members();
  void member_died(int member);
  void member_lost(int rank);
  void wake_members();

  // TCP.
  void read(TcpConnection& connection);
  void read_to_the_end(TcpConnection& connection);
  void flush(TcpConnection& connection);
  void watch(TcpConnection& connection);
  void watch_for_room(TcpConnection& connection, bool watch_it);
  void handle(TcpConnection& connection, std::uint32_t what);
  void handle(TcpConnection& connection, TcpConnection::Event event);
  void close(TcpConnection& connection);
  void connection_lost(TcpConnection& connection);
  void name_as_lost(const TcpConnection& connection);
  void end_streams(const std::vector<std::byte>& last, TcpConnection::Delivery until,
                   std::chrono::nanoseconds linger);
  void drop_tcp_transfers(const Status& why);

  void peer_left(int rank);
  void fail_about(int rank, const Status& fault);
  void fail_as(const Status& why, const FailureNotice& notice);
  void drop_local_transfers(const Status& why);

  EndpointContext context_;
  WaitPolicy wait_;
  EventSet events_;
  Descriptor wakeup_;
  std::array<std::byte, 8192> staging_;
  std::optional<LaneMemory> lane_;
  std::optional<SharedGroup> group_;
  std::uint64_t seen_events_ = 0;  // of lane_
  std::vector<Peer> peers_;
  std::vector<int> departed_;  // peers that have said goodbye
  std::vector<int> awaited_;   // peers that something is awaited from, and some that it was
  std::size_t awaited_connections_ = 0;  // those of them that are reached over TCP
  Inbox self_;
  FailureState failure_;
  std::chrono::nanoseconds linger_{0};
  TcpConnection* suspect_ = nullptr;  // a connection that was cut off
  Deadline judgement_ = Deadline::after(std::chrono::nanoseconds(0));  // on suspect_
  unsigned looks_ = 0;
  std::atomic<bool> woken_{false};
  std::atomic<bool> sleeping_{false};
};

}  // namespace dlaunch
