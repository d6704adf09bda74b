#include "runtime/collective/embedding.h"

#include <algorithm>

namespace dlaunch {
namespace {

Slice moved(const Slice& slice, const Embedding& where) {
  switch (slice.region) {
    case Region::kInput:
      return {where.input.region, where.input.offset + slice.offset, slice.count};
    case Region::kOutput:
      return {where.output.region, where.output.offset + slice.offset, slice.count};
    case Region::kScratch:
      break;
  }
  return {Region::kScratch, where.scratch + slice.offset, slice.count};
}

}  // namespace

void append(Plan& plan, const Plan& part, const Embedding& where) {
  const auto rank = [&](int peer) {
    return where.ranks.empty() ? peer : where.ranks[static_cast<std::size_t>(peer)];
  };
  for (PlanStep step : part.steps) {
    for (PlannedCopy& copy : step.copies) copy = {moved(copy.from, where), moved(copy.into, where)};
    for (PlannedReduction& reduction : step.reductions) {
      for (Slice& operand : reduction.operands) operand = moved(operand, where);
      reduction.into = moved(reduction.into, where);
    }
    for (Slice& slice : step.divisions) slice = moved(slice, where);
    for (PlannedSend& send : step.sends) send = {rank(send.peer), moved(send.from, where)};
    for (PlannedRecv& recv : step.recvs) {
      recv = {rank(recv.peer), moved(recv.into, where), recv.landing, moved(recv.with, where)};
    }
    plan.steps.push_back(std::move(step));
  }
  plan.scratch = std::max(plan.scratch, where.scratch + part.scratch);
}

}  // namespace dlaunch
