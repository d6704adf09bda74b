// The optimizer that options ask for.
#pragma once

#include <memory>
#include <variant>

#include "nn/optim/adam.h"
#include "nn/optim/muon.h"
#include "nn/optim/sgd.h"

namespace dlaunch::nn {

using OptimizerOptions = std::variant<SgdOptions, AdamOptions, MuonOptions>;

std::unique_ptr<Optimizer> make_optimizer(FlatParameters parameters,
                                          const OptimizerOptions& options);

}  // namespace dlaunch::nn
