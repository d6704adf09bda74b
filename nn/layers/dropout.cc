#include "nn/layers/dropout.h"

#include <sstream>
#include <utility>

namespace dlaunch::nn {

Dropout::Dropout(double probability, Generator& generator)
    : probability_(probability), generator_(generator) {
  if (!(probability >= 0 && probability < 1)) {
    throw Error("dropout: probability " + std::to_string(probability) + " is not in [0, 1)");
  }
}

Tensor Dropout::forward(Tensor input) {
  if (!is_training() || probability_ == 0) return input;
  return dropout(std::move(input), probability_, generator_);
}

std::string Dropout::kind() const {
  std::ostringstream text;
  text << "Dropout(" << probability_ << ")";
  return text.str();
}

}  // namespace dlaunch::nn
