// dbench explain: what the cost model predicts for a collective, and what is therefore chosen.
#pragma once

#include <string>

#include "tools/bench/options.h"

namespace dlaunch::bench {

/// Prints every algorithm with the terms of its prediction, the quickest first. `model_path`: the
/// file of the cost model; empty: the built-in one. Throws ConfigError if the file is wrong.
void explain(const Options& options, const std::string& model_path);

}  // namespace dlaunch::bench
