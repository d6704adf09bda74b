// SharedCalls: which calls of a lane are carried out directly in shared memory, and how.
//
// One thread at a time, like Lane::prepare.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/collective/shared_execution.h"
#include "runtime/collective/shared_plan.h"
#include "runtime/comm/call_shape.h"
#include "runtime/comm/collective_call.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {

class SharedCalls {
 public:
  /// How calls of one shape are carried out.
  struct Recipe {
    Algorithm algorithm = Algorithm::kDirect;  // or kOneShot
    std::shared_ptr<const SharedPlan> plan;    // none: by messages
    SharedGroup::Channel channel = SharedGroup::Channel::kShort;
    std::size_t slot_unit = 0;  // see SharedGroup::slot
    bool in_place = false;
    bool one_shot = false;        // what is exposed goes through the slot
    std::size_t input_count = 0;  // elements that this member exposes
    std::size_t own_offset = 0;   // bytes from the beginning of the whole vector to its own part
    std::size_t bytes() const { return plan == nullptr ? 0 : plan->bytes(); }
  };

  /// `group` is the endpoint's; with nullptr nothing goes through shared memory. It must have all
  /// ranks of the world as members.
  explicit SharedCalls(const SharedGroup* group) : group_(group) {}

  /// The recipe for `call`, which is valid and has this shape, good until the next call of
  /// recipe_for(). nullptr if it goes by messages: because the caller asks for another algorithm,
  /// because there is no shared memory, or because it does not fit. The same on every rank.
  const Recipe* recipe_for(const CallShape& shape, const CollectiveCall& call);

  /// What SharedExecution needs, but for the signature.
  SharedAssignment assignment(const Recipe& recipe, const CollectiveCall& call) const;

 private:
  Recipe make_recipe(const CallShape& asked, const CollectiveCall& call) const;

  const SharedGroup* group_;
  ShapeCache<Recipe> recipes_;
};

}  // namespace dlaunch
