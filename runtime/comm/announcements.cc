#include "runtime/comm/announcements.h"

#include <algorithm>
#include <string>

#include "runtime/collective/signature.h"

namespace dlaunch {
namespace {

// How many past calls can still be compared.
constexpr std::size_t kRemembered = 256;
// A rank that has never announced anything may not be listening: it is not sent more than this.
constexpr int kMostUnanswered = 64;

const MessageTag kTag{.context = static_cast<std::uint32_t>(Traffic::kAnnouncement)};
const MessageSignature kSignature{.operation = kAnnouncementOperation};

}  // namespace

Announcements::Announcements(Endpoint& endpoint)
    : endpoint_(endpoint),
      own_(kRemembered),
      peers_(static_cast<std::size_t>(endpoint.world_size())) {}

const MessageSignature& Announcements::own(std::uint64_t sequence) const {
  return own_[sequence % kRemembered];
}

Status Announcements::entered(std::uint64_t sequence, const MessageSignature& signature) {
  last_ = sequence;
  own_[sequence % kRemembered] = signature;
  Status found;
  std::erase_if(early_, [&](const Foreign& foreign) {
    if (foreign.payload.sequence > sequence) return false;
    if (found.ok()) found = compare(foreign.peer, foreign.payload);
    return true;
  });
  return found;
}

Status Announcements::compare(int peer, const Payload& theirs) const {
  const MessageSignature& ours = own(theirs.sequence);
  if (theirs.signature == ours) return Status();
  return Status::about_peer(StatusCode::kMismatch, peer,
                            "called " + describe_signature(theirs.signature) + " as collective #" +
                                std::to_string(theirs.sequence) + " where rank " +
                                std::to_string(endpoint_.rank()) + " called " +
                                describe_signature(ours));
}

void Announcements::listen(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  from.listening = true;
  from.recv.reset();
  from.recv.peer = peer;
  from.recv.tag = kTag;
  from.recv.signature = kSignature;
  from.recv.data = reinterpret_cast<std::byte*>(&from.heard);
  from.recv.bytes = sizeof(Payload);
  endpoint_.start_recv(from.recv);
}

void Announcements::announce(std::uint64_t sequence, const MessageSignature& signature) {
  while (!outgoing_.empty() &&
         std::ranges::all_of(outgoing_.front().sends, [](const Transfer& t) { return t.done(); })) {
    outgoing_.pop_front();
  }
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.payload = {sequence, signature};
  outgoing.sends.resize(peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    Transfer& send = outgoing.sends[i];
    const bool wanted = rank != endpoint_.rank() && peers_[i].unanswered < kMostUnanswered;
    if (!wanted) {
      send.complete(Status());
      continue;
    }
    if (!peers_[i].listening) listen(rank);
    if (peers_[i].newest == 0) ++peers_[i].unanswered;
    send.peer = rank;
    send.tag = kTag;
    send.signature = kSignature;
    send.data = reinterpret_cast<std::byte*>(&outgoing.payload);
    send.bytes = sizeof(Payload);
    endpoint_.start_send(send);
  }
}

Status Announcements::check() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    const int rank = static_cast<int>(i);
    // A receive that ended badly says that the peer left or that the endpoint failed; whether that
    // matters, the collective itself finds out.
    while (peer.listening && peer.recv.done() && peer.recv.status().ok()) {
      const Payload heard = peer.heard;
      peer.newest = std::max(peer.newest, heard.sequence);
      peer.unanswered = 0;
      listen(rank);
      if (heard.sequence > last_) {
        early_.push_back({rank, heard});
      } else if (last_ - heard.sequence < kRemembered) {
        DLAUNCH_RETURN_IF_ERROR(compare(rank, heard));
      }
    }
  }
  return Status();
}

std::vector<int> Announcements::silent(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (rank != endpoint_.rank() && peers_[i].newest < sequence) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace dlaunch
