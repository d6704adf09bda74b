// LoopbackNetwork: ranks inside one process, for tests of everything above the transport.
//
// Each rank's endpoint is driven by a thread of its own. Messages are copied into the receiver's
// mailbox and matched there by the receiver's thread, so that the rules are those of a real
// transport; failures, goodbyes and deaths travel the same way. With `shared_memory` the endpoints
// also offer a SharedGroup, so that collectives in shared memory can be tested with threads.
#pragma once

#include <memory>
#include <vector>

#include "transport/endpoint.h"

namespace dlaunch {

class LoopbackNetwork {
 public:
  /// `describe` puts signatures into words for mismatches.
  explicit LoopbackNetwork(int world_size, SignaturePrinter describe = nullptr,
                           bool shared_memory = false);
  ~LoopbackNetwork();
  LoopbackNetwork(LoopbackNetwork&&) noexcept;
  LoopbackNetwork& operator=(LoopbackNetwork&&) noexcept;

  /// The endpoint of `rank`; at most once per rank. It may outlive the network. Destroying it is an
  /// orderly leave.
  std::unique_ptr<Endpoint> endpoint(int rank);

  /// Makes `rank` look dead, in two steps, as a rank may have endpoints in several networks, and
  /// the dead tell nobody of their end: first its peers get kPeerLost about it, in all of them, ...
  /// Any thread.
  void report_death(int rank);
  /// ... then its own endpoint fails. Any thread.
  void stop(int rank);

  /// Each rank's mailbox and the lock of it.
  struct Mailboxes;

 private:
  std::shared_ptr<Mailboxes> mailboxes_;
};

}  // namespace dlaunch
