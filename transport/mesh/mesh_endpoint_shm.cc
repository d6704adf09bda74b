// MeshEndpoint: its peers in shared memory.
#include <poll.h>

#include <algorithm>

#include "transport/mesh/mesh_endpoint.h"

namespace dlaunch {
namespace {

// A process that is killed loses its memory first, and is seen to be dead only then.
constexpr std::chrono::seconds kDying{1};
constexpr std::chrono::milliseconds kBetweenLooks{5};

}  // namespace

void MeshEndpoint::read(ShmLink& link) {
  const Status taken = link.read();
  if (taken.ok()) return;
  if (taken.code() == StatusCode::kPeerLost) return fail_unreadable(taken);
  fail_about(link.peer(), taken);
}

Status MeshEndpoint::group_failure() {
  if (lane_.has_value() && lane_->events() != seen_events_) look_at_members();
  return failure_.status();
}

void MeshEndpoint::fail_unreadable(const Status& why) {
  const int rank = why.peer().value_or(context_.rank);
  const std::vector<HostGroup::Member>& members = lane_->group().members;
  const auto member = std::find_if(members.begin(), members.end(),
                                   [&](const auto& each) { return each.rank == rank; });
  if (member == members.end()) return fail(why);
  for (const Deadline end = Deadline::after(kDying); !end.expired();) {
    look_at_members();
    if (failure_.failed() || peer(rank).left) return;
    pollfd death{.fd = member->pidfd.get(), .events = POLLIN, .revents = 0};
    if (::poll(&death, 1, static_cast<int>(kBetweenLooks.count())) > 0) {
      return member_died(static_cast<int>(member - members.begin()));
    }
  }
  // It lives, so the fault is its program's.
  fail(Status::about_peer(StatusCode::kIo, rank,
                          "its buffer cannot be read; was it freed, or is it shorter than said?"));
}

// Nothing more comes from a peer that has gone: takes in all that it sent, and what it fetched.
void MeshEndpoint::read_to_the_end(ShmLink& link) {
  link.complete_fetched();
  link.lift_limit();
  while (!failure_.failed() && link.has_input()) {
    const Status taken = link.read();
    if (taken.ok() && !link.is_withdrawn()) continue;
    if (!taken.ok() && taken.code() != StatusCode::kPeerLost) fail_about(link.peer(), taken);
    return;
  }
}

// A member has left or failed since the last look. What it sent before is read first.
void MeshEndpoint::look_at_members() {
  seen_events_ = lane_->events();
  for (int member = 0; member < group_->size(); ++member) {
    const int rank = group_->rank(member);
    if (failure_.failed()) return;
    if (rank == context_.rank || peer(rank).left) continue;
    const std::uint32_t state = lane_->state(member);
    if (state == MemberState::kAlive) continue;
    read_to_the_end(*peer(rank).link);
    if (failure_.failed()) return;
    if (state == MemberState::kLeft) {
      peer_left(rank);
    } else if (state == MemberState::kFailed) {
      const Result<FailureNotice> notice = lane_->notice(member, context_.world_size);
      if (!notice.ok()) return fail_about(rank, notice.status());
      return fail_as(notice->to_status(), *notice);
    } else {
      return member_lost(rank);
    }
  }
}

// A process has ended: after a goodbye or a notice, or without a word.
void MeshEndpoint::member_died(int member) {
  look_at_members();
  if (failure_.failed()) return;
  const int rank = group_->rank(member);
  events_.remove(lane_->group().members[static_cast<std::size_t>(member)].pidfd.get());
  if (peer(rank).left) return;
  read_to_the_end(*peer(rank).link);
  if (!failure_.failed()) member_lost(rank);
}

void MeshEndpoint::member_lost(int rank) {
  fail(Status::about_peer(StatusCode::kPeerLost, rank,
                          "connection closed unexpectedly: its process has ended"));
}

void MeshEndpoint::wake_members() {
  for (int member = 0; member < group_->size(); ++member) {
    if (member != group_->index()) group_->wake(member);
  }
}

}  // namespace dlaunch
