// The layer table of a network as text.
#pragma once

#include <string>

#include "nn/core/module.h"

namespace dlaunch::nn {

/// One aligned line per layer (name, kind, output shape, parameters, multiply-adds), a header above
/// and the totals below; every line ends with a newline. `input` is the shape of the batch that
/// shapes and multiply-adds are for, usually of one image.
std::string format_layer_table(const Module& network, const Shape& input);

}  // namespace dlaunch::nn
