// dbench explain: what the cost model predicts for a collective, and what is therefore chosen.
#pragma once

#include "tools/bench/options.h"

namespace dlaunch::bench {

/// Prints every algorithm with the terms of its prediction, the quickest first. Throws ConfigError
/// if the model's file is wrong.
void explain(const Options& options);

}  // namespace dlaunch::bench
