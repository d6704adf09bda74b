#include "nn/optim/make_optimizer.h"

#include <utility>

namespace dlaunch::nn {
namespace {

struct Maker {
  FlatParameters parameters;

  std::unique_ptr<Optimizer> operator()(const SgdOptions& options) {
    return std::make_unique<Sgd>(std::move(parameters), options);
  }
  std::unique_ptr<Optimizer> operator()(const AdamOptions& options) {
    return std::make_unique<Adam>(std::move(parameters), options);
  }
  std::unique_ptr<Optimizer> operator()(const MuonOptions& options) {
    return std::make_unique<Muon>(std::move(parameters), options);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(FlatParameters parameters,
                                          const OptimizerOptions& options) {
  return std::visit(Maker{std::move(parameters)}, options);
}

}  // namespace dlaunch::nn
