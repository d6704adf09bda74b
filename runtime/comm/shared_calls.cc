#include "runtime/comm/shared_calls.h"

#include <algorithm>
#include <iterator>

#include "runtime/collective/selection.h"

namespace dlaunch {
namespace {

using Channel = SharedGroup::Channel;

// Slots are used piece by piece for what is not longer than these, where every member has a core.
constexpr std::size_t kSlotUnits[] = {std::size_t{64} << 10, std::size_t{256} << 10};
// All members' slots together stay in the cache; shorter pieces cost more meetings than they save.
constexpr std::size_t kAllPiecesBytes = std::size_t{2} << 20;
constexpr std::size_t kLeastPieceBytes = std::size_t{128} << 10;

bool exposes_part(CollectiveKind kind) {
  return kind == CollectiveKind::kGather || kind == CollectiveKind::kAllGather;
}

bool has_equal_parts(CollectiveKind kind) {
  return exposes_part(kind) || kind == CollectiveKind::kScatter ||
         kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
}

// Beyond a slot, what the members expose goes through it in pieces: that is a copy more than
// reading in place, but one in the cache, and what is read more than once, or only to be reduced,
// has to be copied there anyway. Only a scatter's root makes that copy alone, for everybody: for
// some members it does so as quickly as each can have the kernel read its part.
bool goes_in_pieces(CollectiveKind kind, int members) {
  constexpr int kSomeMembers = 3;
  return kind != CollectiveKind::kScatter || members <= kSomeMembers;
}

Channel channel_for(std::size_t bytes) {
  return bytes <= SharedGroup::slot_bytes(Channel::kShort) ? Channel::kShort : Channel::kLong;
}

Partition parts_of(const CollectiveCall& call, int members, std::size_t count) {
  if (!call.counts.empty()) return Partition::of(call.counts);
  return has_equal_parts(call.kind)
             ? Partition::equal(members, count / static_cast<std::size_t>(members))
             : Partition::even(members, count);
}

}  // namespace

SharedCalls::Recipe SharedCalls::make_recipe(const CallShape& asked,
                                             const CollectiveCall& call) const {
  const bool one_shot = asked.algorithm == Algorithm::kOneShot;
  const bool free = asked.algorithm == Algorithm::kAuto;
  const std::size_t element = asked.element;
  if (!free && !one_shot && asked.algorithm != Algorithm::kDirect) return {};
  if (one_shot && asked.kind != CollectiveKind::kAllReduce) return {};
  if (element > SharedGroup::slot_bytes(Channel::kShort)) return {};  // huge records
  const int members = group_->size();
  const int member = group_->index();
  SharedShape shape{.kind = asked.kind,
                    .algorithm = asked.algorithm,
                    .member = member,
                    .members = members,
                    .root = asked.root,
                    .element = element,
                    .parts = parts_of(call, members, asked.count)};
  const std::size_t longest = exposes_part(asked.kind) ? shape.parts.longest() : asked.count;
  const std::size_t bytes = longest * element;
  if (free) {
    shape.algorithm = choose_in_shared_memory(asked.kind, bytes, members, group_->core_each());
  }
  Recipe recipe{.algorithm = shape.algorithm, .channel = channel_for(bytes)};
  if (asked.kind == CollectiveKind::kReduce &&
      is_reduced_alone(bytes, members, group_->core_each())) {
    shape.algorithm = Algorithm::kOneShot;
  }
  if (recipe.channel == Channel::kLong && group_->core_each()) {
    const auto* unit = std::ranges::lower_bound(kSlotUnits, bytes);
    if (unit != std::end(kSlotUnits)) recipe.slot_unit = *unit;
  }
  shape.slot = SharedGroup::slot_bytes(recipe.channel);
  if (bytes > shape.slot) {
    shape.slot = std::clamp(kAllPiecesBytes / static_cast<std::size_t>(members), kLeastPieceBytes,
                            shape.slot);
    // Also what even the least pieces of many members do not fit: records of many KiB.
    shape.readable = group_->members_readable() &&
                     (!goes_in_pieces(call.kind, members) || !has_shared_plan(shape));
  }
  if (!has_shared_plan(shape)) return {};
  recipe.plan = std::make_shared<const SharedPlan>(shared_plan(shape));
  recipe.in_place = shape.readable;
  recipe.one_shot = shape.algorithm == Algorithm::kOneShot;
  recipe.input_count = exposes_part(asked.kind) ? shape.parts.count(member) : asked.count;
  recipe.own_offset = shape.parts.offset(member) * element;
  const bool only_root_exposes =
      call.kind == CollectiveKind::kBroadcast || call.kind == CollectiveKind::kScatter;
  if (only_root_exposes && call.root != member) recipe.input_count = 0;
  return recipe;
}

const SharedCalls::Recipe* SharedCalls::recipe_for(const CallShape& shape,
                                                   const CollectiveCall& call) {
  if (group_ == nullptr || !call.recv_counts.empty()) return nullptr;  // nobody knows all counts
  const Recipe& recipe = recipes_.get(shape, call, [&] { return make_recipe(shape, call); });
  return recipe.plan == nullptr ? nullptr : &recipe;
}

SharedAssignment SharedCalls::assignment(const Recipe& recipe, const CollectiveCall& call) const {
  SharedAssignment assignment{.channel = recipe.channel,
                              .plan = recipe.plan,
                              .input = static_cast<const std::byte*>(call.input.data),
                              .input_count = recipe.input_count,
                              .output = static_cast<std::byte*>(call.output.data),
                              .dtype = dtype_of_call(call),
                              .op = call.op,
                              .slot_unit = recipe.slot_unit,
                              .in_place = recipe.in_place,
                              .one_shot = recipe.one_shot};
  const bool reduce = call.kind == CollectiveKind::kReduce;
  assignment.exposes_result =
      (reduce || call.kind == CollectiveKind::kAllReduce) && !assignment.one_shot;
  if (reduce && call.root != group_->rank(group_->index())) assignment.output = nullptr;
  if (call.kind == CollectiveKind::kReduceScatter) {
    // The result may go to the beginning of the input, which others still read.
    assignment.output_last = assignment.output == assignment.input && recipe.own_offset != 0;
    assignment.output_count = call.output.bytes() / element_bytes(call);
  }
  return assignment;
}

}  // namespace dlaunch
